"""Checks of single arguments: each returns the value as it is sent, or says what is wrong."""

import numbers
import operator
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import SupportsIndex

from outrider.errors import InvalidArgumentError
from outrider.types import AcceptanceMode

_UINT32_MAX = 2**32 - 1

# The bounds that the services have (their tests compare them).
MAX_TOKENS = 2**24
MAX_SPECULATIVE_TOKENS = 128
MAX_WIDTH = 32

AUTO = "auto"


def checked_whole(
    name: str, value: object, *, at_least: int = 0, at_most: int = _UINT32_MAX
) -> int:
    """A whole number within bounds; True and False are none."""
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        number = operator.index(value)
        if at_least <= number <= at_most:
            return number
    raise InvalidArgumentError(
        f"{name} is {value!r}; give a whole number from {at_least} to {at_most}"
    )


def checked_number(name: str, value: object) -> float:
    """A real number; its bounds are checked where its meaning is known."""
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        with suppress(OverflowError):
            return float(value)
    raise InvalidArgumentError(f"{name} is {value!r}; give a number")


def checked_text(name: str, value: object) -> str:
    """A string that can be sent."""
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name} is a {type(value).__name__}; give a str")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(
            f"{name} has a lone surrogate at character {error.start}, which is not valid text; "
            "decode its bytes with errors='replace'"
        ) from None
    return value


def checked_flag(name: str, value: object) -> bool:
    """True or False."""
    if isinstance(value, bool):
        return value
    raise InvalidArgumentError(f"{name} is {value!r}; give True or False")


def checked_ids(name: str, values: object) -> list[int]:
    """Token ids."""
    if isinstance(values, (str, bytes, bytearray)) or not isinstance(values, Iterable):
        raise InvalidArgumentError(f"{name} is a {type(values).__name__}; give token ids in a list")
    return [checked_whole(f"{name}[{index}]", value) for index, value in enumerate(values)]


def checked_bias(values: object) -> tuple[tuple[int, float], ...]:
    """(token id, bias) pairs in the order of the ids; their bounds are checked elsewhere."""
    if not isinstance(values, Mapping):
        raise InvalidArgumentError(
            f"logit_bias is a {type(values).__name__}; give a mapping of token ids to numbers"
        )
    return tuple(
        sorted(
            (
                checked_whole("a token id of logit_bias", token),
                checked_number(f"logit_bias of token {token}", bias),
            )
            for token, bias in values.items()
        )
    )


def checked_mode(mode: object) -> AcceptanceMode:
    """An acceptance mode or the name of one; "auto" is coupled."""
    if mode == AUTO:
        return AcceptanceMode.COUPLED
    for known in AcceptanceMode:
        if mode == known:
            return known
    names = ", ".join([AUTO, *(known.value for known in AcceptanceMode)])
    raise InvalidArgumentError(f"mode is {mode!r}; give one of {names}")
