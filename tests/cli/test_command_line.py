"""The surface: commands, help, version, mistakes in arguments, and what starting loads."""

import json
import os
import subprocess
import sys

import pytest

from orchestrator.cli.app import main
from outrider.version import __version__

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
    ("bench",),
    ("demo",),
    ("doctor",),
    ("models",),
    ("models", "list"),
    ("models", "pull"),
    ("config",),
    ("config", "show"),
    ("config", "schema"),
    ("certs",),
    ("certs", "init"),
    ("certs", "issue"),
    ("certs", "show"),
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
    for group, command in (("serve", "orchestrator"), ("models", "pull"), ("config", "schema")):
        assert main([group]) == 0
        assert command in capsys.readouterr().out


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
        (("generate", "hi", "--max-tokens", "0"), "--max-tokens is 0"),
        (("generate", "hi", "--max-tokens", "-5"), "--max-tokens is -5"),
        (("generate", "hi", "--max-tokens", "many"), "--max-tokens"),
        (("generate", "hi", "--temperature", "-1"), "--temperature is -1.0"),
        (("generate", "hi", "--temperature", "nan"), "temperature is nan"),
        (("generate", "hi", "--temperature", "hot"), "--temperature"),
        (("generate", "hi", "--top-k", "-1"), "--top-k is -1"),
        (("generate", "hi", "--top-p", "0"), "--top-p is 0.0"),
        (("generate", "hi", "--top-p", "1.5"), "--top-p is 1.5"),
        (("generate", "hi", "--min-p", "1"), "--min-p is 1.0"),
        (("generate", "hi", "--seed", "-3"), "--seed is -3"),
        (("generate", "hi", "--seed", "x"), "--seed"),
        (("generate", "hi", "--mode", "guess"), "--mode is 'guess'"),
        (("generate", "hi", "--max-drafts", "-1"), "--max-drafts is -1"),
        (("generate", "hi", "--min-tokens", "300"), "--min-tokens is 300; give 0 to --max-tokens"),
        (("generate", "hi", "--repetition-penalty", "0"), "--repetition-penalty is 0.0"),
        (("generate", "hi", "--frequency-penalty", "3"), "--frequency-penalty is 3.0"),
        (("generate", "hi", "--presence-penalty", "nan"), "--presence-penalty is nan"),
        (("generate", "hi", "--logit-bias", "3"), "'3' is no bias; give ID=BIAS, like 42=-5"),
        (("generate", "hi", "--logit-bias", "3=101"), "--logit-bias of token 3 is 101.0"),
        (
            ("generate", "hi", "--logit-bias", "3=1", "--logit-bias", "03=2"),
            "token 3 is given twice",
        ),
        (("generate", "hi", "--allowed-token", "-1"), "--allowed-token[0] is -1"),
        (("generate", "hi", "--stop-token", "-1"), "--stop-token[0] is -1"),
        (("generate", "hi", "--include-stop"), "--include-stop is True without a text in stop"),
        (("serve", "all", "--mode", "fast"), "mode is 'fast'; give one of auto, coupled"),
        (("generate", "hi", "--banned-token", "-1"), "--banned-token[0] is -1"),
        (("generate", "hi", "--json-schema", "no/file"), "neither JSON text nor a file that can"),
        (("generate", "hi", "--json-schema", "{"), "--json-schema is no JSON"),
        (("generate", "hi", "--regex", ""), "--regex is ''"),
        (("generate", "hi", "--regex", "a", "--choice", "a"), "are given; give one of them"),
        (("generate", "hi", "--stop", ""), "stop string 0 has 0 characters; give 1 to 256"),
        (("generate", "hi", "--logprobs", "2"), "--logprobs are shown with --json only; add it"),
        (("generate", "hi", "--json", "--logprobs", "21"), "--logprobs is 21"),
        (("generate", "hi", "-n", "0"), "'-n'"),
        (("generate", "hi", "-n", "2", "--top-p", "0"), "--top-p is 0.0"),
        (("generate", "hi", "-n", "2", "--choice-index", "1"), "--choice-index is for one answer"),
        (("generate", "hi", "--choice-index", "1024", "--seed", "1"), "--choice-index is 1024"),
        (("generate", "hi", "--choice-index", "3"), "give --seed, too"),
        (("chat", "--stop", ""), "stop string 0 has 0 characters"),
        (("serve", "orchestrator", "--mode", "fast"), "--mode"),
        (
            ("generate", "hi", "--num-speculative-tokens", "0"),
            "--num-speculative-tokens is 0; give a whole number from 1 to 128 (--max-drafts 0 ",
        ),
        (
            ("generate", "hi", "--num-speculative-tokens", "129"),
            "--num-speculative-tokens is 129",
        ),
        (("generate", "hi", "--width", "0"), "--width is 0"),
        (("generate", "hi", "--width", "33"), "--width is 33; give a whole number from 1 to 32"),
        (("generate", "hi", "--max-tokens", "16777217"), "from 1 to 16777216"),
        (("generate", "hi", "--timeout", "0"), "--timeout is 0.0"),
        (("generate", "  \n "), "the prompt is empty"),
        (("generate", "hi", "--address", "nowhere"), "--address is 'nowhere'; give host:port"),
        (("ps", "--address", "localhost:99999"), "--address is 'localhost:99999'"),
        (("chat", "--address", "https://localhost:7070"), "--address is 'https://"),
        (("chat", "--temperature", "-1"), "--temperature is -1.0"),
        (("chat", "--width", "33"), "--width is 33"),
        (("bench", "--concurrency", "1,x"), "--concurrency has 'x'; give whole numbers from 1 to"),
        (("bench", "--concurrency", "0"), "--concurrency has 0"),
        (("bench", "--concurrency", "1.5"), "--concurrency has 1.5; give whole numbers"),
        (("bench", "--temperature", "-1"), "--temperature has -1"),
        (("bench", "--max-drafts", ""), "--max-drafts has ''"),
        (("bench", "--num-speculative-tokens", "129"), "--num-speculative-tokens has 129"),
        (("bench", "--repetitions", "0"), "--repetitions"),
        (("bench", "--requests", "0"), "--requests"),
        (("bench", "--format", "xml"), "--format is 'xml'; give one of md, csv, json"),
        (("bench", "--plot", "speed.txt"), "--plot is 'speed.txt'; give a file that ends in .png"),
        (("bench", "--prompts", "no/file"), "the prompts in no/file cannot be read"),
        (("bench", "--output", "no/folder/f"), "there is no folder no/folder"),
        (("bench", "--max-tokens", "0"), "--max-tokens is 0"),
        (("bench", "--mode", "guess"), "--mode is 'guess'"),
        (("bench", "--address", "nowhere"), "--address is 'nowhere'"),
        (("demo", "--max-tokens", "0"), "--max-tokens is 0"),
        (("demo", "--max-tokens", "-3"), "--max-tokens is -3"),
        (("demo", "--temperature", "-1"), "--temperature is -1.0"),
        (("demo", "--seed", "-1"), "--seed is -1"),
        (("demo", "--draft-model", ""), "--draft-model"),
        (("demo", "   "), "the prompt is empty"),
        (("ps", "--timeout", "-1"), "--timeout is -1.0"),
        (("serve", "all", "--draft-model", " "), "--draft-model"),
        (("chat", "--address", " "), "address is ' '"),
        (("serve", "frobnicate"), "frobnicate"),
        (("serve", "all", "--port", "65536"), "--port"),
        (("serve", "all", "--threads", "-1"), "--threads"),
        (("serve", "all", "--grace-s", "0"), "--grace-s"),
        (("serve", "verify", "--port", "x"), "--port"),
        (("serve", "draft", "--kv-tokens", "1"), "--kv-tokens"),
        (("serve", "orchestrator", "--draft", "nowhere"), "is not an address"),
        (("serve", "orchestrator", "--wait-nodes", "129"), "--wait-nodes is '129'; give a whole"),
        (("serve", "verify", "--frobnicate"), "unrecognized arguments: --frobnicate"),
        (("serve", "verify", "--kv-token", "9"), "did you mean '--kv-tokens'?"),
        (("serve", "verify", "--port"), "argument --port: expected one argument"),
        (("serve", "draft", "--config", "no/file"), "the config file no/file cannot be read"),
        (("serve", "all", "--config", "no/file"), "the config file no/file cannot be read"),
        (("serve", "all", "--host", "0.0.0.0"), "host 0.0.0.0 is reachable from other machines"),
        (("config", "show", "frobnicate"), "frobnicate"),
        (("config", "show", "--json", "--yaml"), "--json and --yaml are given; give one of them"),
        (("models", "pull"), "'name'"),
        (("bench", "--json", "--format", "csv"), "--json and --format csv are given; give one"),
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


@pytest.mark.parametrize("group", [(), ("serve",), ("models",), ("config",), ("certs",)])
def test_the_list_of_commands_cuts_no_description(group, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert status_of(*group, "--help") == 0
    listed = capsys.readouterr().out.partition("Commands:")[2]
    assert listed.strip()
    assert "..." not in listed


def without(package: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line where a package cannot be imported."""
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from outrider.command import main; raise SystemExit(main())"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("package", "arguments"),
    [("typer", ("--help",)), ("platformdirs", ("serve", "all", "--draft-model", "none"))],
)
def test_a_package_that_is_not_installed_is_told_with_what_installs_it(package, arguments):
    done = without(package, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"outrider: this command needs more packages ({package} is missing); "
        "install them with: pip install 'outrider[all]'\n"
    )


def test_a_module_of_ours_that_is_missing_is_no_missing_package():
    assert "ModuleNotFoundError" in without("orchestrator.cli.flags", "--help").stderr


def test_grpc_is_silent_where_errors_are_told_unless_the_user_wants_to_hear_it(monkeypatch):
    for chosen, expected in ((None, "NONE"), ("DEBUG", "DEBUG")):
        monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
        if chosen:
            monkeypatch.setenv("GRPC_VERBOSITY", chosen)
        assert main(["generate", ""]) == 2
        assert os.environ["GRPC_VERBOSITY"] == expected


HEAVY = (
    *("fastapi", "grpc", "httpx", "huggingface_hub", "matplotlib", "numpy", "pip", "platformdirs"),
    *("prompt_toolkit", "pydantic", "ray", "structlog", "torch", "transformers", "uvicorn", "yaml"),
)
"""What takes long to import."""


@pytest.mark.parametrize("arguments", [["--help"], ["generate", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(arguments):
    code = (
        "import json, sys\n"
        "from orchestrator.cli.app import main\n"
        "main(json.loads(sys.argv[1]))\n"
        "sys.stderr.write(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stderr)}
    heavy = set(HEAVY)
    if arguments != ["--help"]:
        heavy.remove("pydantic")  # Typer reads the values of flags with it.
    assert not loaded & heavy
