#!/bin/sh
# Creates the virtual environment: make-venv.sh PYTHON DIRECTORY
set -eu
python=$1 venv=$2
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "gpuyard needs Python 3.11 or later; $python is $("$python" --version 2>&1)" >&2
    exit 1
}
if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    # Debian has venv in a separate package
    as_root=
    [ "$(id -u)" = 0 ] || as_root="sudo -n"
    $as_root apt-get update -qq && $as_root apt-get install -y -qq python3-venv >/dev/null || {
        echo "this Python cannot create virtual environments; run: apt-get install python3-venv" >&2
        exit 1
    }
fi
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
