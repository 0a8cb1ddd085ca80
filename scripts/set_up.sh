#!/bin/sh
# Makes the virtual environment and installs the project in it: scripts/set_up.sh all|dev
# `all` takes llama.cpp along where it can be compiled; `dev` needs it, because the tests do.
# PYTHON, VENV and PIP_ARGS come from the Makefile; pip's own PIP_* variables pass through.
set -eu

extras=$1
python=${PYTHON:-python3}
venv=${VENV:-.venv}
build_log=$venv/llama-cpp-build.log

say() { printf 'outrider: %s\n' "$*" >&2; }
fail() {
    say "$*"
    exit 1
}
is_sound() { "$1" -c 'import sys, pip; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; }
has_llamacpp() {
    "$venv/bin/python" -c 'import sys, importlib.util as u; sys.exit(not u.find_spec("llama_cpp"))'
}
# On some systems c++ only says where a compiler could be had, so it has to compile something.
has_compiler() {
    for compiler in "${CXX:-c++}" g++ clang++; do
        if printf '#include <vector>\n' | $compiler -x c++ -fsyntax-only - >/dev/null 2>&1; then
            return 0
        fi
    done
    return 1
}
# shellcheck disable=SC2086 # PIP_ARGS is a list of words.
install() {
    "$venv/bin/python" -m pip install -qq --disable-pip-version-check \
        -c constraints.txt ${PIP_ARGS:-} -e ".[$1]"
}

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

compiling='compiling llama.cpp for GGUF models, once: about 6 minutes on two cores, or none where'
compiling="$compiling pip has kept it"
if [ "$extras" = dev ] && ! has_llamacpp; then
    has_compiler || fail "no C++ compiler was found, and the tests need llama.cpp, which is" \
        "compiled here; on Debian or Ubuntu: sudo apt install g++, on macOS: xcode-select --install"
    what="$what, $compiling"
fi
say "installing $what; into $venv, a few minutes the first time"
install "$extras" || fail "the installation failed; pip's reason is above, and the next make tries again"

# `all` works without llama.cpp, so nothing about it may stop the installation.
[ "$extras" = all ] && ! has_llamacpp || exit 0
later="To have it later: $venv/bin/python -m pip install -c constraints.txt -e '.[gguf]'"
if ! has_compiler; then
    say "no C++ compiler was found, so this goes on without GGUF models (llama.cpp). $later"
    exit 0
fi
say "$compiling"
install gguf >"$build_log" 2>&1 ||
    say "llama.cpp could not be compiled (see $build_log), so this goes on without GGUF models. $later"
