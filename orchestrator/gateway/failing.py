"""Errors in OpenAI's shape with the right status; the HTTP twin of `outrider.wire.errors`."""

import math
import re
import reprlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.gateway.outcomes import Failure, Problem
from outrider.errors import (
    AbortedError,
    CapacityError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotAllowedError,
    NotFoundError,
    OutriderError,
    RequestCancelledError,
    StateMismatchError,
    UnavailableError,
)

BAD_REQUEST = "invalid_request_error"
SERVER = "server_error"


@dataclass(frozen=True, slots=True)
class Row:
    """A class of errors with its HTTP status, OpenAI's type and code."""

    error: type[OutriderError]
    status: int
    type: str
    code: str | None


TABLE = (
    Row(InvalidArgumentError, 400, BAD_REQUEST, None),
    Row(NotFoundError, 404, BAD_REQUEST, "model_not_found"),
    Row(CapacityError, 429, "rate_limit_error", "capacity"),
    Row(UnavailableError, 503, SERVER, "unavailable"),
    Row(DeadlineError, 504, SERVER, "timeout"),
    Row(StateMismatchError, 503, SERVER, "state_mismatch"),
    Row(AbortedError, 503, SERVER, "aborted"),
    Row(NotAllowedError, 503, SERVER, "not_allowed"),
    Row(RequestCancelledError, 499, BAD_REQUEST, "cancelled"),
    Row(InternalError, 500, SERVER, "internal_error"),
)

_NAME = re.compile(r"(?!(?:str|int|float|bool)$)[a-z_]+|\d+")

RETRY_AFTER_S = 1.0
"""Where the error does not say, and trying again may help."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An error as it is sent."""

    status: int
    failure: Failure
    headers: Mapping[str, str]


def answered(error: OutriderError, fields: Collection[str] = ()) -> Answered:
    """`fields` are the names that a message may begin with: it is about that one."""
    row = next((row for row in TABLE if isinstance(error, row.error)), TABLE[-1])
    word = error.message.partition(" ")[0]
    problem = Problem(
        message=error.message,
        type=row.type,
        param=word if word in fields else None,
        code=row.code,
    )
    headers: dict[str, str] = {}
    if isinstance(error, CapacityError) and error.retry_after_s is None:
        # It would not fit an idle service either; OpenAI's client obeys this.
        headers["x-should-retry"] = "false"
    elif row.status in (429, 503):
        wait_s = error.retry_after_s
        headers["Retry-After"] = str(max(1, math.ceil(RETRY_AFTER_S if wait_s is None else wait_s)))
    return Answered(row.status, Failure(error=problem), headers)


def misread(problems: Sequence[Any]) -> Answered:
    """What pydantic found wrong with a body: the first of it, by the name of the field."""
    first = problems[0]
    if first["type"] == "json_invalid":
        return refused(400, f"the body is not JSON: {first['ctx']['error']}")
    param = _field(first)
    # A value that may be of several types is told what each of them wanted.
    wanted = dict.fromkeys(str(p["msg"]) for p in problems[:8] if _field(p) == param)
    # Of a long value, its beginning.
    got = reprlib.repr(first.get("input"))
    message = f"{param or 'the body'}: {'; or '.join(wanted)}; got {got}"
    return refused(400, message, param=param or None)


def _field(problem: Any) -> str:
    """Its path, without the names of types in it."""
    parts = (str(part) for part in problem["loc"] if part != "body")
    return ".".join(part for part in parts if _NAME.fullmatch(part))


def refused(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answered:
    """What is refused before an engine sees it."""
    kind = SERVER if status >= 500 else BAD_REQUEST
    problem = Problem(message=message, type=kind, param=param, code=code)
    return Answered(status, Failure(error=problem), headers or {})
