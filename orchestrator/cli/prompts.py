"""The prompt of a command: its argument, or standard input. Knows no client."""

import sys

from orchestrator.cli.console import MISUSED, fail

Messages = list[dict[str, str]]


def read_prompt(argument: str | None) -> str:
    """The prompt as text; `-`, or no argument and a pipe, stand for standard input.

    One line break at its end is dropped: `echo` adds it.
    """
    if argument is None and sys.stdin.isatty():
        fail("there is no prompt; give it as an argument, or pipe it in", MISUSED)
    if argument is None or argument == "-":
        argument = _piped()
    if not argument.strip():
        fail("the prompt is empty; give some text", MISUSED)
    return argument


def as_messages(text: str) -> Messages:
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


def _piped() -> str:
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        fail(f"standard input is not UTF-8 text at byte {error.start}; convert it (iconv)", MISUSED)
    return text.removesuffix("\n").removesuffix("\r")
