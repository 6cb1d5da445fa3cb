#!/bin/sh
# Print a folder to work in, with schedules/ and docs/ in it and room for .sched: sh scripts/workplace.sh VENV
#
# The repository itself, or a copy beside the virtual environment for somebody who may only read the repository.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
if [ -w "$here" ]; then
    echo "$here"
    exit
fi
place=$1/work
mkdir -p "$place"
cp -R "$here/schedules" "$here/docs" "$place/"
echo "$place"
