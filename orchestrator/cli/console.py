"""What the command says: answers on standard output, everything else on standard error."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from outrider.addresses import is_loopback
from outrider.errors import InternalError, InvalidArgumentError, OutriderError

NOBODY_ANSWERS = "nothing answers at"
NO_CHAT_TEMPLATE = "no chat template"
"""How two errors are recognised for which this command knows what to do."""
FOR_PROGRAMS = ", see .text"
"""What an error says to programs only."""

FLAGS = {
    "max_tokens": "--max-tokens",
    "min_tokens": "--min-tokens",
    "top_k": "--top-k",
    "top_p": "--top-p",
    "min_p": "--min-p",
    "repetition_penalty": "--repetition-penalty",
    "frequency_penalty": "--frequency-penalty",
    "presence_penalty": "--presence-penalty",
    "logit_bias": "--logit-bias",
    "allowed_token_ids": "--allowed-token",
    "banned_token_ids": "--banned-token",
    "stop_token_ids": "--stop-token",
    "ignore_eos": "--ignore-eos",
    "include_stop": "--include-stop",
    "json_schema": "--json-schema",
    "choice_index": "--choice-index",
    "max_drafts": "--max-drafts",
    "num_speculative_tokens": "--num-speculative-tokens",
    "timeout_s": "--timeout",
}
"""The flags of parameters whose names are no words of people."""
_PARAMETER = re.compile(rf"\b(?:{'|'.join(FLAGS)})\b")
_WORD_AS_PARAMETER = re.compile(
    r"(?=(?:address|days|host|logprobs|mode|model|name|regex|role|seed|temperature|width) is )"
)

FAILED = 1
MISUSED = 2
INTERRUPTED = 130


def say(text: str) -> None:
    """One line for the person in front of the screen; what follows a line break is shown below."""
    typer.echo("outrider: " + text.rstrip().replace("\n", "\n    "), err=True)


def fail(text: str, status: int = FAILED) -> NoReturn:
    """Says why the command ends here."""
    say(text)
    raise typer.Exit(status)


@contextmanager
def errors_told() -> Iterator[None]:
    """Ends the command with one line and status 1 where a domain error comes through."""
    try:
        yield
    except OutriderError as error:
        fail(told(error))


@contextmanager
def misuse_told() -> Iterator[None]:
    """Ends the command with one line and status 2 where an argument is refused unsent."""
    try:
        yield
    except InvalidArgumentError as error:
        named = ("--" if _WORD_AS_PARAMETER.match(error.message) else "") + error.message
        fail(_with_flags(named), MISUSED)


@contextmanager
def settings_told() -> Iterator[None]:
    """As `misuse_told`, for messages that name flags, variables and lines already."""
    try:
        yield
    except InvalidArgumentError as error:
        fail(error.message, MISUSED)


def told(error: OutriderError) -> str:
    """A domain error as this command tells it."""
    if error.message.startswith(NOBODY_ANSWERS):
        plain = error.message.partition(" (gRPC")[0]
        address = plain.removeprefix(NOBODY_ANSWERS).partition(";")[0].strip()
        if not is_loopback(address):
            return plain
        return f"{plain} To start everything on this machine: outrider serve all"
    if NO_CHAT_TEMPLATE in error.message:
        return f"{error.message}. Here: --raw sends the text as it is"
    where = f" (request {error.request_id})" if isinstance(error, InternalError) else ""
    message = error.message.removesuffix(FOR_PROGRAMS) + where
    return _with_flags(message) if isinstance(error, InvalidArgumentError) else message


def _with_flags(message: str) -> str:
    return _PARAMETER.sub(lambda match: FLAGS[match[0]], message)


def is_colourful() -> bool:
    """Whether standard output is a terminal that shows colours, and nobody asked for none."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not is_plain


def write(text: str, colour: str | None = None) -> None:
    """A piece of an answer, shown at once. A terminal gets no control characters from a model."""
    if sys.stdout.isatty():
        text = "".join(c for c in text if c.isprintable() or c in "\n\t")
    if colour and is_colourful():
        text = typer.style(text, fg=colour)
    sys.stdout.write(text)
    sys.stdout.flush()
