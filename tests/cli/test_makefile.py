"""The Makefile and the set-up script, in a folder where the heavy tools are stand-ins."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHOW_ARGUMENTS = """#!/bin/sh
for argument in "$@"; do printf '[%s]' "$argument"; done
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what `make` reads, where `outrider` shows its arguments and pip notes its own."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    script(tmp_path / ".venv/bin/outrider", SHOW_ARGUMENTS)
    script(
        tmp_path / ".venv/bin/python",
        '#!/bin/sh\ncase "$*" in\n'
        '*-m\\ pip*gguf*) echo "$@" >>pip.log; exit "${GGUF_STATUS:-0}" ;;\n'
        '*-m\\ pip*) echo "$@" >>pip.log; exit "${PIP_STATUS:-0}" ;;\n'
        '*llama_cpp*) exit "${LLAMA_STATUS:-0}" ;;\nesac\n',
    )
    return tmp_path


def _without_make() -> dict[str, str]:
    """The suite itself runs under make, which tells its own children so."""
    told = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "ARGS")
    return {name: value for name, value in os.environ.items() if name not in told}


def make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env={**_without_make(), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "prompt",
    [
        "Why is the sky blue?",
        """it's "quoted" `date` \\n""",
        "grüß $USER, das macht $5 und $(6 oder $$7 # nicht wahr",
        "-starts with a dash",
        "two\nlines",
        "$(shell echo expanded)",
    ],
)
def test_a_prompt_reaches_the_demo_as_it_is(project, prompt):
    assert make(project, "demo", f"PROMPT={prompt}").stdout == f"[demo][--][{prompt}]"


def test_a_prompt_variable_of_the_shell_is_no_prompt(project):
    assert make(project, "demo", PROMPT="%n@%m$ ").stdout == "[demo]"


def test_it_installs_once_until_the_requirements_change(project):
    make(project, "demo")
    make(project, "demo")
    assert (project / "pip.log").read_text().count("-e .[all]") == 1
    stamp = (project / ".venv/.outrider-all").stat().st_mtime
    os.utime(project / "constraints.txt", (stamp + 1, stamp + 1))
    make(project, "demo")
    assert (project / "pip.log").read_text().count("-e .[all]") == 2


def test_an_installation_that_failed_is_done_again(project):
    failed = make(project, "demo", PIP_STATUS="1")
    assert failed.returncode != 0
    assert "the next make tries again" in failed.stderr
    assert make(project, "demo").returncode == 0
    assert (project / "pip.log").read_text().count("-e .[all]") == 2


def test_what_the_tests_need_includes_what_the_demo_needs(project):
    make(project, "stubs")
    make(project, "demo")
    assert (project / "pip.log").read_text().count("install") == 1


def test_arguments_for_pip_pass_through(project):
    make(project, "install", "PIP_ARGS=--no-cache-dir --pre")
    assert "-c constraints.txt --no-cache-dir --pre -e" in (project / "pip.log").read_text()


MISSING = {"LLAMA_STATUS": "1"}
"""llama.cpp is not there yet."""


def compilers(folder: Path, text: str) -> dict[str, str]:
    """An environment whose every C++ compiler is a script; an empty one finds no headers."""
    for name in ("c++", "g++", "clang++"):
        script(folder / "compilers" / name, f"#!/bin/sh\n{text}\n")
    return {"PATH": f"{folder / 'compilers'}:{os.environ['PATH']}", "CXX": "c++"}


def installed(project: Path) -> list[str]:
    """What pip was asked for."""
    return [line.split()[-1] for line in (project / "pip.log").read_text().splitlines()]


def test_with_a_compiler_the_demo_gets_llamacpp_and_says_how_long_that_takes(project):
    made = make(project, "demo", **MISSING, **compilers(project, "exit 0"))
    assert made.stdout == "[demo]"
    assert "compiling llama.cpp for GGUF models, once: about 6 minutes" in made.stderr
    assert installed(project) == [".[all]", ".[gguf]"]


def test_llamacpp_that_is_there_is_not_mentioned(project):
    made = make(project, "demo", **compilers(project, "exit 0"))
    assert "llama.cpp" not in made.stderr
    assert installed(project) == [".[all]"]


def test_without_a_compiler_the_demo_goes_on_and_says_what_is_missing(project):
    made = make(project, "demo", **MISSING, **compilers(project, "exit 1"))
    assert made.stdout == "[demo]"
    assert "no C++ compiler was found, so this goes on without GGUF models" in made.stderr
    assert installed(project) == [".[all]"]
    assert "no C++ compiler" not in make(project, "demo", **MISSING).stderr


def test_a_failed_build_of_llamacpp_does_not_stop_the_demo(project):
    made = make(project, "demo", GGUF_STATUS="1", **MISSING, **compilers(project, "exit 0"))
    assert made.stdout == "[demo]"
    assert "llama.cpp could not be compiled (see .venv/llama-cpp-build.log)" in made.stderr


def test_the_tests_are_refused_without_a_compiler_with_what_to_do(project):
    refused = make(project, "stubs", **MISSING, **compilers(project, "exit 1"))
    assert refused.returncode != 0
    assert "sudo apt install g++" in refused.stderr
    assert not (project / "pip.log").exists()


def test_the_tests_get_llamacpp_with_everything_else(project):
    made = make(project, "stubs", **MISSING, **compilers(project, "exit 0"))
    assert made.returncode == 0, made.stderr
    assert "about 6 minutes" in made.stderr
    assert installed(project) == [".[dev]"]
    pyproject = (project / "pyproject.toml").read_text()
    assert re.search(r'^dev = \[\n    "outrider\[[a-z,]*\bgguf\b', pyproject, re.MULTILINE)


@pytest.mark.parametrize(
    ("python", "told"),
    [
        (None, "was not found; install Python 3.10 or newer"),
        ("case $1 in --version) echo Python 3.9.2 ;; *) exit 1 ;; esac", "is Python 3.9.2; name"),
        ("case $2 in *ensurepip*) exit 1 ;; esac", "sudo apt install python3-venv"),
    ],
)
def test_a_python_that_will_not_do_is_told_with_what_to_do(project, python, told):
    shutil.rmtree(project / ".venv")
    path = project / "bin/python-x"
    if python is not None:
        script(path, f"#!/bin/sh\n{python}\n")
    refused = make(project, "demo", f"PYTHON={path}")
    assert refused.returncode != 0
    assert told in refused.stderr


def test_help_lists_every_target():
    shown = make(ROOT, "help").stdout
    for target in ("demo", "test", "install", "lint", "constraints", "stubs", "clean"):
        assert f"make {target} " in shown
