#!/bin/sh
# Write requirements/*.txt anew from pyproject.toml: sh scripts/lock.sh VENV [uv pip compile options, e.g. --upgrade]
#
# Pins and hashes for all platforms and Python releases; no addresses, so that any index can serve them.
set -eu

uv=$1/bin/uv
shift
cd "$(dirname "$0")/.."

compile() {
    output=$1
    shift
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
        --output-file "requirements/$output" pyproject.toml requirements/build.in "$@" >/dev/null
}

compile dev.txt --extra embedded --extra holidays --extra lab --extra dev "$@"
compile demo.txt --extra embedded --constraint requirements/dev.txt
if grep -n "://" requirements/*.txt; then
    echo "lock: an address got into the lines above; they must hold names, versions and hashes only" >&2
    exit 1
fi
