"""The shell completes commands, flags and models: asked of bash itself."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest
from running_commands import COMMAND, run

ASK = """\
eval "$(outrider --show-completion)"
COMP_WORDS=({words}) COMP_CWORD={last}
_outrider_completion outrider
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command under its name, and a hub's cache with one model in it."""
    command = tmp_path / "bin" / "outrider"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    (tmp_path / "hf" / "hub" / "models--org--tiny-1b").mkdir(parents=True)


def completed(*words: str) -> list[str]:
    text = ASK.format(words=shlex.join(("outrider", *words)), last=len(words))
    done = subprocess.run(
        ["bash", "--norc", "-c", text], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("ge",), ["generate"]),
        (("models", ""), ["list", "pull"]),
        (("models", "pull", "smollm2-"), ["smollm2-f32.gguf", "smollm2-f16.gguf"]),
        (("models", "pull", "org/"), ["org/tiny-1b"]),
        (("serve", "all", "--model", "gem"), ["gemma3", "gemma3.gguf"]),
        (("serve", "all", "--draft-model", "ng"), ["ngram:"]),
        (("config", "show", "ver"), ["verify"]),
        (("generate", "--max-t"), ["--max-tokens"]),
        (("serve", "verify", "--kv-t"), ["--kv-tokens"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_bash_completes(on_path, words, offered):
    found = completed(*words)
    assert found[: len(offered)] == offered


def test_a_path_is_left_to_the_shell(on_path):
    assert completed("serve", "all", "--model", "./") == []


def test_the_root_offers_to_install_it():
    shown = run("--help").stdout
    assert "--install-completion" in shown
    assert "--show-completion" in shown
