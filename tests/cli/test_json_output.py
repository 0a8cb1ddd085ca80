"""Every command that prints a result prints it as JSON, too: the keys of the reference, and nothing
else beside it."""

import json
import re
from pathlib import Path

import pytest
from running_commands import run

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"
SCRIPTED = ("--model", "scripted:vocab=62", "--draft-model", "scripted:vocab=62")
QUICK = ("--concurrency", "1", "--repetitions", "1", "--requests", "1", "--max-tokens", "4")
ASKING = {
    "ps": ("ps",),
    "doctor": ("doctor", "--no-measure"),
    "bench": ("bench", *QUICK),
    "generate": ("generate", "hi", "--max-tokens", "4"),
}
"""Commands that ask a deployment."""
APART = {
    "doctor --model": ("doctor", "--model", "ngram:"),
    "models list": ("models", "list"),
    "config show": ("config", "show"),
    "demo": ("demo", "hi", *SCRIPTED, "--max-tokens", "4", "--ray", "local"),
}
OPTIONAL = {"logprobs"}


def documented(name: str) -> set[str]:
    """The keys that the reference lists for a command."""
    rows = re.findall(rf"^\| {name} \| (.*) \|$", REFERENCE.read_text("utf-8"), re.MULTILINE)
    return set(re.findall(r"`(\w+)`", rows[0]))


def printed(*arguments: str) -> str:
    done = run(*arguments, "--json", timeout_s=180)
    assert done.status == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ASKING)
def test_a_command_that_asks_a_deployment_prints_the_object_of_the_reference(address, name):
    found = json.loads(printed(*ASKING[name], "--address", address))
    assert found.keys() == documented(name) - OPTIONAL


@pytest.mark.parametrize("name", APART)
def test_a_command_of_its_own_prints_the_object_of_the_reference(name):
    assert json.loads(printed(*APART[name])).keys() == documented(name)


def test_several_answers_are_an_object_a_line(address):
    lines = printed(*ASKING["generate"], "-n", "2", "--address", address).splitlines()
    wanted = (documented("generate") - OPTIONAL) | documented("generate -n")
    assert [json.loads(line).keys() for line in lines] == [wanted, wanted]
