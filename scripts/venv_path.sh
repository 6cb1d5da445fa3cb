#!/bin/sh
# Print where the virtual environment of this repository belongs: .venv in it, or a folder of the calling user's cache
# or of the temporary folder, for somebody who may only read the repository.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
cache=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}
name=$(echo "$here" | cksum | cut -d " " -f 1)

if [ -w "$here" ] && { [ ! -e "$here/.venv" ] || [ -w "$here/.venv" ]; }; then
    echo "$here/.venv"
elif [ -w "$cache" ] || [ -w "$(dirname "$cache")" ]; then
    echo "$cache/sched-pg/$name"
else
    echo "${TMPDIR:-/tmp}/sched-pg-$(id -u)/$name"
fi
