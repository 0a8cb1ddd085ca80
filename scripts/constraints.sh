#!/bin/sh
# Writes constraints.txt anew from pyproject.toml, for every supported Python and system.
# Indexes for uv come from its own variables (UV_DEFAULT_INDEX, UV_INDEX, UV_FIND_LINKS).
set -eu

venv=${VENV:-.venv}
torch='torch==2.13.0'

"$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'uv>=0.9'
resolved=$(mktemp)
trap 'rm -f "$resolved"' EXIT
printf '%s\n' "$torch" | "$venv/bin/uv" pip compile --quiet --upgrade --universal \
    --python-version 3.10 --no-header --no-annotate --all-extras \
    --constraint - pyproject.toml >"$resolved"
{
    echo '# Versions the project is built and tested with; pyproject.toml keeps the ranges open.'
    echo '# Regenerate: make constraints'
    # torch pins its CUDA libraries itself, and its CPU build has none.
    grep -vE '^(torch|triton|nvidia-[^m]|cuda-)' "$resolved"
    echo "$torch"
} >constraints.txt
