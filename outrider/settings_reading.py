"""The values of a service's settings: its flags, then the environment, then the config file, then
defaults; where each came from, and what is wrong with it.

Knows neither the services nor what their settings mean.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import CliSettingsSource, SettingsError

from outrider.config_file import VARIABLE, ConfigFile, Entry, closest, read_config
from outrider.errors import InvalidArgumentError
from outrider.setting import Setting, settings_of

if TYPE_CHECKING:
    from outrider.settings import ServerSettings

S = TypeVar("S", bound="ServerSettings")

CONFIG_HELP = (
    f"YAML file with settings, each under its service; 'none': no file (default: what {VARIABLE} "
    "names, else config.yaml in the user's configuration folder, if it is there)"
)
PARSING = "error parsing CLI: "
"""How the library begins to tell what is wrong with flags."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value came from: a flag, a variable, or a file and its line by name."""

    kind: Literal["flag", "environment", "file", "default"]
    where: str = ""

    def subject(self, name: str) -> str:
        """The value of a setting, as a sentence about it begins."""
        return f"{self.where}: {name}" if self.kind == "file" else self.where or name


@dataclass(frozen=True, slots=True)
class Found(Generic[S]):
    """Settings, and where each of their values came from."""

    settings: S
    origins: Mapping[str, Origin]

    def is_set(self, name: str) -> bool:
        """Whether somebody has chosen the value of a setting."""
        return self.origins[name].kind != "default"


def find_settings(kind: type[S], arguments: Sequence[str], program: str) -> Found[S]:
    """The settings of a service. `program` is what its help calls it; --help ends the process.

    Raises InvalidArgumentError that names the flag, the variable or the line of each bad value,
    what was got and what was wanted.
    """
    known = settings_of(kind)
    source, given, named = _parsed(kind, known, arguments, program)
    config = read_config(named)
    entries = config.sections.get(kind.section, {})
    _refuse_unknown(config, kind.section, known)
    origins = _origins(known, given, config, entries)
    # The library would let what a program gives come before the environment.
    from_file: dict[str, Any] = {
        n: e.value for n, e in entries.items() if origins[n].kind == "file"
    }
    try:
        settings = kind(_cli_settings_source=source, **from_file)  # type: ignore[call-arg]
    except ValidationError as error:
        problems = [_problem(details, known, origins) for details in error.errors()]
        raise InvalidArgumentError("; ".join(problems)) from error
    except SettingsError as error:
        raise InvalidArgumentError(str(error)) from error
    return Found(settings, origins)


def _parsed(
    kind: type[S], known: Mapping[str, Setting], arguments: Sequence[str], program: str
) -> tuple[CliSettingsSource[S], set[str], str | None]:
    """The flags as a source of values, the names of those given, and the file that one names."""
    source: CliSettingsSource[S] = CliSettingsSource(
        kind,
        cli_prog_name=program,
        cli_implicit_flags=True,
        cli_kebab_case=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_shortcuts=None,
        cli_exit_on_error=False,
    )
    parser: Any = source.root_parser
    parser.add_argument("--config", metavar="FILE", help=CONFIG_HELP)
    try:
        given = vars(parser.parse_args(list(arguments)))
    except SettingsError as error:
        flags = [flag for setting in known.values() for flag in setting.flags] + ["--config"]
        stray = next((a for a in arguments if a.startswith("--") and _name(a) not in flags), None)
        hint = closest(_name(stray), flags) if stray is not None else ""
        told = str(error).removeprefix(PARSING)
        raise InvalidArgumentError(
            f"{told}{hint or ';'} {program} --help lists what there is"
        ) from error
    named = given.pop("config")
    return source(parsed_args=given), set(given), named


def _name(argument: str) -> str:
    return argument.partition("=")[0]


def _refuse_unknown(config: ConfigFile, section: str, known: Mapping[str, Setting]) -> None:
    for name, entry in config.sections.get(section, {}).items():
        if name not in known:
            raise InvalidArgumentError(
                f"{config.path}, line {entry.line}: {section} has no setting {name!r}"
                f"{closest(name, known) or '; outrider config show lists them'}"
            )


def _origins(
    known: Mapping[str, Setting],
    given: set[str],
    config: ConfigFile,
    entries: Mapping[str, Entry],
) -> dict[str, Origin]:
    # The library reads variables in any case.
    variables = {name.upper() for name in os.environ}

    def origin(setting: Setting) -> Origin:
        if setting.name in given:
            return Origin("flag", setting.flag)
        if setting.variable in variables:
            return Origin("environment", setting.variable)
        if setting.name in entries:
            return Origin("file", f"{config.path}, line {entries[setting.name].line}")
        return Origin("default")

    return {name: origin(setting) for name, setting in known.items()}


def _problem(
    details: ErrorDetails, known: Mapping[str, Setting], origins: Mapping[str, Origin]
) -> str:
    message = details["msg"].removeprefix("Value error, ")
    if not details["loc"]:
        return message
    setting = known[str(details["loc"][0])]
    subject = origins[setting.name].subject(setting.name)
    got = "a secret" if setting.is_secret else repr(details["input"])
    if details["type"] == "value_error":
        return f"{subject}: {message}, got {got}"
    return f"{subject} is {got}; give {setting.wanted}"
