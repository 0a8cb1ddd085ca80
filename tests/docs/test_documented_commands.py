"""Whatever the documentation tells people to type exists: commands, flags, variables, targets."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from documentation import PAGES, ROOT, SITE, Command, commands, name_of, spans, text_of

from draft_service.settings import DraftSettings
from orchestrator.cli.app import PARSING_ERROR, app
from orchestrator.settings import OrchestratorSettings
from outrider.settings import ServerSettings, read_settings
from verify_service.settings import VerifySettings

SERVICES: dict[str, type[ServerSettings]] = {
    "draft": DraftSettings,
    "verify": VerifySettings,
    "orchestrator": OrchestratorSettings,
}
WRITTEN = [page for page in PAGES if page.parent.name != "reference"]
"""The reference is made from the program."""
COMMANDS = list(dict.fromkeys(command for page in WRITTEN for command in commands(page)))
GUIDES = [page for page in WRITTEN if page in SITE and page.parent.name != "benchmarks"]


def parse(arguments: list[str]) -> None:
    """Reads arguments as the command line does, and runs nothing."""
    command: Any = typer.main.get_command(app)
    path = ["outrider"]
    # Those of `outrider` itself act when they are read: they install a completion, or show a text.
    acting = {"--help", *(flag for parameter in command.params for flag in parameter.opts)}
    rest = [argument for argument in arguments if argument not in acting]
    while rest and not rest[0].startswith("-") and rest[0] in getattr(command, "commands", ()):
        command = command.commands[rest[0]]
        path.append(rest.pop(0))
    if path[1:2] == ["serve"] and path[-1] in SERVICES:
        read_settings(SERVICES[path[-1]], rest, " ".join(path))
        return
    if rest and not rest[0].startswith("-") and hasattr(command, "commands"):
        raise typer.BadParameter(f"there is no command {rest[0]!r}")
    command.make_context(" ".join(path), rest)


def variables() -> set[str]:
    """Every setting as a variable."""
    return {
        f"{kind.model_config.get('env_prefix', '')}{name}".upper()
        for kind in SERVICES.values()
        for name in kind.model_fields
    }


def flags() -> set[str]:
    """Every flag of every command."""

    def of(command: Any) -> Iterator[str]:
        for parameter in command.params:
            yield from (*parameter.opts, *parameter.secondary_opts)
        for inner in getattr(command, "commands", {}).values():
            yield from of(inner)

    known = {"--help", *of(typer.main.get_command(app))}
    for kind in SERVICES.values():
        for name, field in kind.model_fields.items():
            word = name.replace("_", "-")
            known |= {f"--{word}", f"--no-{word}"} if field.annotation is bool else {f"--{word}"}
    return known


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: f"{c.page}: {c.text}")
def test_a_command_is_one_that_the_program_takes(command: Command) -> None:
    parse(command.arguments)
    assert set(command.variables) <= variables()


@pytest.mark.parametrize(
    "wrong",
    [
        ["sing"],
        ["generate", "hi", "--loudly"],
        ["serve", "draft", "--loudly"],
        ["serve", "orchestrator", "--width", "none"],
    ],
)
def test_a_command_that_the_program_does_not_take_is_found(wrong: list[str]) -> None:
    with pytest.raises((PARSING_ERROR, SystemExit)):
        parse(wrong)


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_flags_and_variables_in_sentences_exist(page: Any) -> None:
    ours = [span for span in spans(page) if span.startswith(("--", "outrider "))]
    told = {flag for span in ours for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)}
    assert told <= flags()
    source = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("outrider", "orchestrator", "scripts")
        for path in (ROOT / folder).rglob("*.py")
    )
    named = set(re.findall(r"\bOUTRIDER_[A-Z_]+\b", text_of(page)))
    assert {name for name in named - variables() if name not in source} == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_targets_of_make_exist(page: Any) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    told = {span.split()[1] for span in spans(page) if re.match(r"make [a-z]+", span)}
    told |= set(re.findall(r"^ *make ([a-z]+)", text_of(page), re.MULTILINE))
    assert told <= known
