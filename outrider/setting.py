"""One setting of a service as people meet it: its flag, its variable, its key, what it takes.

Read off the fields of a settings class; knows no values and no files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic_settings import BaseSettings


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of a settings class. `wanted` continues "give …"."""

    name: str
    variable: str
    wanted: str
    description: str
    default: object
    is_switch: bool
    is_secret: bool

    @property
    def flag(self) -> str:
        """As it is given on a command line: kv_tokens is --kv-tokens."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def flags(self) -> tuple[str, ...]:
        """The flag and, of what is on or off, its opposite."""
        opposite = (f"--no-{self.flag.removeprefix('--')}",) if self.is_switch else ()
        return (self.flag, *opposite)


def settings_of(kind: type[BaseSettings]) -> dict[str, Setting]:
    """The settings of a service by name, in the order of its class."""
    prefix = kind.model_config.get("env_prefix", "")
    return {
        name: Setting(
            name=name,
            variable=f"{prefix}{name}".upper(),
            wanted=_wanted(field.annotation, field.metadata),
            description=field.description or "",
            default=field.default,
            is_switch=field.annotation is bool,
            is_secret=SecretStr in (field.annotation, *get_args(field.annotation)),
        )
        for name, field in kind.model_fields.items()
    }


def _wanted(annotation: Any, bounds: Sequence[Any]) -> str:
    """What a field takes, in words.

    >>> from annotated_types import Ge, Le
    >>> _wanted(int, [Ge(0), Le(9)]), _wanted(list[str], []), _wanted(Literal["a", "b"], [])
    ('a whole number from 0 to 9', 'a list of texts', 'one of a, b')
    """
    arguments = [part for part in get_args(annotation) if part is not NoneType]
    if get_origin(annotation) is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if get_origin(annotation) is list:
        return "a list of texts"
    if len(arguments) < len(get_args(annotation)):
        return _wanted(arguments[0], bounds)
    if annotation is bool:
        return "true or false"
    if annotation in (int, float):
        return ("a whole number" if annotation is int else "a number") + _range(bounds)
    if annotation is Path:
        return "a path"
    return "a text that is not empty" if _bound(bounds, "min_length") else "a text"


def _range(bounds: Sequence[Any]) -> str:
    least, above, most = (_bound(bounds, name) for name in ("ge", "gt", "le"))
    if above is not None:
        return f" above {above}" + ("" if most is None else f", {most} at most")
    if least is None:
        return "" if most is None else f" of at most {most}"
    return f" of at least {least}" if most is None else f" from {least} to {most}"


def _bound(bounds: Sequence[Any], name: str) -> Any:
    return next((getattr(bound, name) for bound in bounds if hasattr(bound, name)), None)
