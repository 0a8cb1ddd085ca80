"""The surface: commands, help, version, mistakes in arguments, and what starting costs."""

import json
import os
import subprocess
import sys

import pytest
from running_commands import COMMAND

from orchestrator.cli.app import main
from outrider.version import __version__

HELP_LIMIT_S = 3.0
"""Only a sanity limit for slow machines; the aim is 0.4 s."""

COMMANDS = [
    (),
    ("serve",),
    ("serve", "all"),
    ("serve", "draft"),
    ("serve", "verify"),
    ("serve", "orchestrator"),
    ("generate",),
    ("chat",),
    ("ps",),
    ("demo",),
]


def status_of(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as ended:  # The services' parser ends by itself.
        return ended.code if isinstance(ended.code, int) else 0


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_that_names_it(command, capsys):
    assert status_of(*command, "--help") == 0
    assert f"usage: {' '.join(('outrider', *command))} " in capsys.readouterr().out.replace(
        "Usage", "usage"
    )


def test_the_services_show_their_own_flags(capsys):
    assert status_of("serve", "verify", "--help") == 0
    assert "--max-tree-nodes" in capsys.readouterr().out


def test_a_command_group_without_a_command_shows_its_help(capsys):
    assert main([]) == 0
    assert "generate" in capsys.readouterr().out
    assert main(["serve"]) == 0
    assert "orchestrator" in capsys.readouterr().out


def test_version_is_that_of_the_package(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"outrider {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "told_why"),
    [
        (("frobnicate",), "frobnicate"),
        (("generate", "hi", "--frobnicate"), "--frobnicate"),
        (("generate", "hi", "there"), "there"),
        (("generate", ""), "the prompt is empty"),
        (("generate", "hi", "--address", ""), "address is ''"),
        (("generate", "hi", "--max-tokens", "0"), "max_tokens is 0"),
        (("generate", "hi", "--max-tokens", "-5"), "max_tokens is -5"),
        (("generate", "hi", "--max-tokens", "many"), "--max-tokens"),
        (("generate", "hi", "--temperature", "-1"), "temperature is -1.0"),
        (("generate", "hi", "--temperature", "nan"), "temperature is nan"),
        (("generate", "hi", "--temperature", "hot"), "--temperature"),
        (("generate", "hi", "--top-k", "-1"), "top_k is -1"),
        (("generate", "hi", "--top-p", "0"), "top_p is 0.0"),
        (("generate", "hi", "--top-p", "1.5"), "top_p is 1.5"),
        (("generate", "hi", "--min-p", "1"), "min_p is 1.0"),
        (("generate", "hi", "--seed", "-3"), "seed is -3"),
        (("generate", "hi", "--seed", "x"), "--seed"),
        (("generate", "hi", "--mode", "guess"), "mode is 'guess'"),
        (("generate", "hi", "--max-drafts", "-1"), "max_drafts is -1"),
        (("generate", "hi", "--num-speculative-tokens", "-1"), "num_speculative_tokens is -1"),
        (("generate", "hi", "--width", "0"), "width is 0"),
        (("generate", "hi", "--timeout", "0"), "timeout_s is 0.0"),
        (("ps", "--timeout", "-1"), "timeout_s is -1.0"),
        (("chat", "--address", " "), "address is ' '"),
        (("serve", "frobnicate"), "frobnicate"),
        (("serve", "all", "--port", "65536"), "--port"),
        (("serve", "all", "--threads", "-1"), "--threads"),
        (("serve", "all", "--grace-s", "0"), "--grace-s"),
        (("serve", "verify", "--port", "x"), "--port"),
        (("serve", "draft", "--kv-tokens", "1"), "--kv-tokens"),
        (("serve", "orchestrator", "--draft", "nowhere"), "is not an address"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_told_in_one_line_with_status_2(arguments, told_why, capsys):
    assert status_of(*arguments) == 2
    told = capsys.readouterr()
    assert told_why in told.err
    assert told.err.startswith("outrider")
    assert told.err.count("\n") == 1
    assert told.out == ""


@pytest.mark.parametrize("arguments", [["--help"], ["generate", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments, record_property):
    code = (
        "import json, sys, time; start = time.perf_counter()\n"
        "from orchestrator.cli.app import main\n"
        "main(json.loads(sys.argv[1]))\n"
        "seconds = time.perf_counter() - start\n"
        "sys.stderr.write(json.dumps({'seconds': seconds, 'modules': sorted(sys.modules)}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    cost = json.loads(done.stderr)
    record_property("help_s", cost["seconds"])
    heavy = {"torch", "ray", "pydantic", "grpc", "transformers", "numpy", "structlog"}
    if arguments != ["--help"]:
        heavy.remove("pydantic")  # Typer reads the values of flags with it.
    assert not {name.partition(".")[0] for name in cost["modules"]} & heavy
    assert cost["seconds"] < HELP_LIMIT_S


def test_the_shell_completes_commands():
    done = subprocess.run(
        COMMAND,
        env={
            **os.environ,
            "_OUTRIDER_COMPLETE": "complete_bash",
            "COMP_WORDS": "outrider ge",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["generate"]
