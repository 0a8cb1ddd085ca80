#!/bin/sh
# Makes the virtual environment and installs the project in it: scripts/set_up.sh all|dev
# PYTHON, VENV and PIP_ARGS come from the Makefile; pip's own PIP_* variables pass through.
set -eu

extras=$1
python=${PYTHON:-python3}
venv=${VENV:-.venv}

say() { printf 'outrider: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}
is_sound() { "$1" -c 'import sys, pip; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; }

if ! is_sound "$venv/bin/python"; then
    command -v "$python" >/dev/null 2>&1 ||
        fail "$python was not found; install Python 3.10 or newer, or name one: make PYTHON=python3.12"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
        fail "Python 3.10 or newer is needed and $python is $("$python" --version 2>&1);" \
            "name another one: make PYTHON=python3.12"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python cannot make virtual environments; on Debian or Ubuntu:" \
            "sudo apt install python3-venv"
    say "making $venv with $("$python" --version 2>&1)"
    "$python" -m venv --clear "$venv" || fail "$venv could not be made; the reason is above"
fi

case $extras in
all) what='Outrider with PyTorch, Transformers and Ray (1.5 GB on disk)' ;;
dev) what='Outrider and its development tools (1.8 GB on disk)' ;;
*) fail "there is no extra $extras; give all or dev" ;;
esac
# On Linux most package indexes hand out the torch build with CUDA. To take the CPU build from
# another index: make PIP_ARGS='--extra-index-url URL', or PIP_EXTRA_INDEX_URL.
[ "$(uname -s)" != Linux ] || what="$what, 5 GB where pip takes PyTorch with CUDA"
say "installing $what; into $venv, a few minutes the first time"
# shellcheck disable=SC2086 # PIP_ARGS is a list of words.
"$venv/bin/python" -m pip install -qq --disable-pip-version-check \
    -c constraints.txt ${PIP_ARGS:-} -e ".[$extras]" ||
    fail "the installation failed; pip's reason is above, and the next make tries again"
