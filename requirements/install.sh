#!/bin/sh
# Sets up .venv with the packages of one lock file beside this one and Drillcore itself: install.sh run|test|bench
# It checks first that this machine has what is needed, and says how to install what is missing.
set -eu
lock=$1
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

missing() {  # what is missing, and the packages that have it on Debian, Fedora and macOS
    printf '%s Install it, then run make again:\n' "$1"
    printf '  Debian, Ubuntu:  apt-get install %s\n  Fedora:          dnf install %s\n  macOS:           %s\n' "$2" "$3" "$4"
    exit 1
} >&2

command -v git >/dev/null || missing 'Drillcore needs git, and there is none.' git git 'xcode-select --install'
command -v "$python" >/dev/null \
    || missing "Drillcore needs Python 3.11 to 3.14, and there is no '$python'." \
        'python3 python3-venv' python3 'brew install python@3.14'
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
    || missing "Drillcore needs Python 3.11 to 3.14, and '$python' is $("$python" --version 2>&1). Is another installed? Name it: make PYTHON=python3.13." \
        'python3 python3-venv' python3.13 'brew install python@3.14'
"$python" -c 'import ensurepip, venv' 2>/dev/null \
    || missing "Drillcore needs Python's venv, and '$python' is without it." python3-venv python3 'brew install python@3.14'

pip() {
    .venv/bin/python -m pip --disable-pip-version-check --no-input install -qq "$@"
}

echo "Installing what Drillcore needs into .venv (once; about a minute) ..."
"$python" -m venv .venv
pip --require-hashes -r requirements/build.txt
pip --require-hashes --no-build-isolation -r "requirements/$lock.txt"
pip --no-build-isolation --no-deps -e .
