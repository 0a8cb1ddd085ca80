"""The one YAML file that may hold settings: where it lies, its sections, and the line of each key.

Knows no settings: which keys a section may have is `settings_reading`'s.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import platformdirs
import yaml

from outrider.errors import InvalidArgumentError

SECTIONS = ("draft", "verify", "orchestrator")
VARIABLE = "OUTRIDER_CONFIG"
MOST_CHARACTERS = 1024 * 1024
NO_FILE = "none"
"""Stands for no file, also where the user has one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of the file, and the line of its key."""

    value: object
    line: int


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The entries of a file by section and key; `path` None: there is no file."""

    path: Path | None = None
    sections: Mapping[str, Mapping[str, Entry]] = field(default_factory=dict)


def default_path() -> Path:
    """Where the user's own file lies, if there is one."""
    return Path(platformdirs.user_config_dir("outrider")) / "config.yaml"


def read_config(named: str | None = None) -> ConfigFile:
    """The file that `named` names, else the variable OUTRIDER_CONFIG, else the user's own.

    Raises InvalidArgumentError with the line where it is no YAML or has other sections.
    """
    chosen = named if named is not None else os.environ.get(VARIABLE) or None
    if chosen == NO_FILE:
        return ConfigFile()
    path = default_path() if chosen is None else Path(chosen).expanduser()
    if chosen is None and not path.is_file():
        return ConfigFile()
    return ConfigFile(path, _sections(path, _text(path)))


def closest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence: what may have been meant; empty where nothing is alike.

    >>> closest("kv-token", ["kv_tokens", "port"]), closest("frobnicate", ["port"])
    ("; did you mean 'kv_tokens'?", '')
    """
    found = get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _text(path: Path) -> str:
    why = ""
    try:
        if not path.exists() or path.is_file():
            with path.open(encoding="utf-8") as file:
                text = file.read(MOST_CHARACTERS + 1)
            if len(text) <= MOST_CHARACTERS:
                return text
            why = f"it has more than {MOST_CHARACTERS} characters"
        else:
            why = "it is no file"
    except OSError as error:
        why = error.strerror or str(error)
    except UnicodeDecodeError:
        why = "it is no text in UTF-8"
    raise InvalidArgumentError(
        f"the config file {path} cannot be read ({why}); give a YAML file, or {NO_FILE!r} for none"
    )


def _sections(path: Path, text: str) -> dict[str, dict[str, Entry]]:
    wanted = f"give the sections {', '.join(SECTIONS)}, each with its settings"
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        sections: dict[str, dict[str, Entry]] = {}
        for name, node, line in _items(root, f"the file is no list of sections; {wanted}"):
            if name not in SECTIONS:
                raise _MisplacedError(
                    f"{name!r} is no section; {wanted}{closest(name, SECTIONS)}", line
                )
            if name in sections:
                raise _MisplacedError(f"the section {name} is there twice; join the two", line)
            entries: dict[str, Entry] = {}
            for key, value, at in _items(node, f"{name} has no settings by name; give key: value"):
                if key in entries:
                    raise _MisplacedError(f"{name} has {key} twice; leave one out", at)
                entries[key] = Entry(_value(loader, key, value, at), at)
            sections[name] = entries
    except _MisplacedError as error:
        raise InvalidArgumentError(f"{path}, line {error.line}: {error}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}, line {mark.line + 1}" if mark is not None else str(path)
        raise InvalidArgumentError(f"{where}: this is no YAML ({error.problem})") from error
    except RecursionError as error:
        raise InvalidArgumentError(f"{path}: it is nested too deeply; {wanted}") from error
    except yaml.YAMLError as error:
        raise InvalidArgumentError(
            f"{path}: this is no YAML ({' '.join(str(error).split())})"
        ) from error
    return sections


def _value(loader: yaml.SafeLoader, key: str, node: yaml.Node, line: int) -> object:
    try:
        return loader.construct_object(node, deep=True)
    except ValueError as error:  # of a date that is none, for example
        raise _MisplacedError(f"{key} cannot be read ({error})", line) from error


class _MisplacedError(Exception):
    """Something that YAML allows and this file does not, in a line of it."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def _items(node: yaml.Node | None, problem: str) -> Iterable[tuple[str, yaml.Node, int]]:
    """The keys of a mapping, their nodes and lines; none of an empty one."""
    if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null")):
        return
    if not isinstance(node, yaml.MappingNode):
        raise _MisplacedError(problem, node.start_mark.line + 1)
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _MisplacedError("a key is no word; give the name of a setting", line)
        yield key.value, value, line
