"""Writes docs/reference/cli.md and settings.md off the command line and the settings classes.

`python scripts/generate_cli_reference.py [output folder]`. Uses no formatted help, so that neither
the width of a terminal nor the version of Python changes a byte.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from orchestrator.cli.app import app
from orchestrator.cli.services import KINDS
from outrider.config_file import VARIABLE
from outrider.setting import Setting, settings_of
from outrider.settings_reading import CONFIG_HELP

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
DO = "Written by `python scripts/generate_cli_reference.py`; do not edit."
CLI = f"""\
# Command line

<!-- {DO} -->

Exit status: 0 done, 1 failed or problems found, 2 wrong arguments, 130 stopped by Ctrl-C. Answers
and results go to standard output, what is said about them to standard error.

## JSON

`--json` prints one object on standard output and nothing else:

| command | keys of its object |
| --- | --- |
| generate | `text`, `ids`, `finish_reason`, `stop_string`, `seed`, `mode`, `request_id`, `stats`, `notices`; `logprobs` where they were asked for |
| generate -n | the same and `choice_index`, an object a line |
| ps | `verify` and `drafts`, each a service: name, address, usable, problem, model, round_trip_us |
| doctor | `address`, `healthy`, `findings`, `expected`, `diagnosis` |
| doctor --model | `models`: role, fit, told, need_bytes |
| bench | `sentence`, `measured_at`, `outrider`, `cluster`, `sweep`, `repetitions`, `prompts`, `max_tokens`, `rows` |
| demo | `prompt`, `model`, `draft_models`, `is_same_text`, `speed_up`; `drafted` and `alone` as of generate |
| models list | `models`: name, source, is_here, size_bytes, path |
| models pull | `name`, `path`, `size_bytes` |
| config show | `file`; `draft`, `verify`, `orchestrator` with value, source and where of each setting |
| config schema | a JSON schema, also without the flag |

An answer that Ctrl-C ended has the `finish_reason` null and no `stats`."""
SETTINGS = f"""\
# Settings

<!-- {DO} -->

A setting is a key of the config file, an environment variable and a flag: `kv_tokens` of `verify`
is `OUTRIDER_VERIFY_KV_TOKENS` and `outrider serve verify --kv-tokens`. Flags come before the
environment, that before the config file, that before the default. The file is the one that
`--config` names, else `{VARIABLE}`, else `config.yaml` in the user's configuration folder
(`outrider config show` tells which); `none` stands for no file.

```yaml
verify:
  model: org/big-model
  kv_tokens: 65536
orchestrator:
  draft: [laptop=10.0.0.2:7072]
```"""

UNSAID = ("true or false", "a text", "a text that is not empty")
"""What a description says better."""


def generate(folder: Path) -> None:
    """Writes both pages."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cli.md").write_text("\n".join(cli_lines()) + "\n", encoding="utf-8")
    (folder / "settings.md").write_text("\n".join(settings_lines()) + "\n", encoding="utf-8")


def cli_lines() -> Iterator[str]:
    """Every command with its arguments and flags; the flags of a service are its settings."""
    yield CLI
    command: Any = typer.main.get_command(app)
    yield from _command_lines(command, typer.Context(command, info_name="outrider"))


def _command_lines(command: Any, context: typer.Context) -> Iterator[str]:
    path = context.command_path
    yield ""
    yield f"## {path}"
    yield ""
    yield command.help.strip()
    kind = KINDS.get(command.name) if path.startswith("outrider serve ") else None
    usage = "[OPTIONS]" if kind is not None else " ".join(command.collect_usage_pieces(context))
    yield ""
    yield f"    {path} {usage}"
    records = [] if kind is not None else [p.get_help_record(context) for p in command.params]
    rows = [record for record in records if record is not None]
    if kind is not None:
        rows = [(", ".join(s.flags), _meaning(s)) for s in settings_of(kind).values()]
        rows.append(("--config FILE", f"{CONFIG_HELP}."))
    if rows:
        yield ""
        yield from _table(("", ""), [(f"`{flag}`", text) for flag, text in rows])
    for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
        child = command.get_command(context, name)
        yield from _command_lines(child, typer.Context(child, parent=context, info_name=name))


def _meaning(setting: Setting) -> str:
    taken = "" if setting.wanted in UNSAID else f" Takes {setting.wanted}."
    return f"{setting.description}.{taken} Default: {_shown(setting)}."


def settings_lines() -> Iterator[str]:
    """Every setting of every service: its key, its variable, what it takes."""
    yield SETTINGS
    for name, kind in KINDS.items():
        yield ""
        yield f"## {name}"
        yield ""
        yield (kind.__doc__ or "").strip()
        yield ""
        yield from _table(
            ("key", "variable", "flag", "takes", "default", ""),
            [
                (
                    *(f"`{setting.name}`", f"`{setting.variable}`"),
                    ", ".join(f"`{flag}`" for flag in setting.flags),
                    *(setting.wanted, _shown(setting), setting.description),
                )
                for setting in settings_of(kind).values()
            ],
        )


def _shown(setting: Setting) -> str:
    """The default, as it is written in the file."""
    default = setting.default
    if isinstance(default, bool):
        return "true" if default else "false"
    if default is None or default in ("", []):
        return "unset"
    return ", ".join(map(str, default)) if isinstance(default, list) else str(default)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield _row(headers)
    yield _row(["---"] * len(headers))
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in cells)} |"


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
