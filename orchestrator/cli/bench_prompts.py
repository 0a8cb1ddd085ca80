"""The prompts of a benchmark: lines of a file, or a few short samples. Knows no client."""

import json
from pathlib import Path

from outrider.errors import InvalidArgumentError

SAMPLES = (
    "Name three rivers of Europe and the seas they flow into.",
    "Explain in a few sentences why the sky is blue.",
    "Write a short story about a coachman who loses his way in the fog.",
    "Write a Python function that tells whether a word is a palindrome, with a docstring.",
    "Translate into French: The bridge was closed, so we had to take the long way round.",
    "A train goes 90 km in 45 minutes. How fast is it, in kilometres an hour? Show each step.",
    "Summarise in one sentence: The scouts rode ahead of the coach, looked for the bridge and the "
    "road, and came back with what they had seen. The coachman decided which way to take.",
    "List the steps to plant a tree, one a line.",
)
"""Short, of several kinds: acceptance depends on the kind of text."""


def read_prompts(path: Path, limit: int | None = None) -> tuple[str, ...]:
    """The prompts of a file, at most `limit`: JSON lines with `turns` (the first one counts),
    `prompt` or `text`, JSON strings, or plain lines of text. Empty lines are passed over.

    Raises InvalidArgumentError that names the file and the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        told = error.strerror or type(error).__name__
        raise InvalidArgumentError(f"the prompts in {path} cannot be read ({told})") from error
    except UnicodeDecodeError as error:
        raise InvalidArgumentError(f"the prompts in {path} are not UTF-8 ({error})") from error
    prompts = [
        prompt_of(line, f"line {number} of {path}")
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not prompts:
        raise InvalidArgumentError(f"{path} has no prompt; give one a line")
    return tuple(prompts[:limit])


def prompt_of(line: str, where: str) -> str:
    """The prompt that a line stands for; `where` names it in an error.

    >>> prompt_of('{"turns": ["Hello", "Again"]}', "line 1"), prompt_of("Hello", "line 1")
    ('Hello', 'Hello')
    """
    if line.lstrip()[0] not in '{"':
        return line.strip()
    try:
        value = json.loads(line)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{where} begins like JSON and is none ({error}); mend it, or give plain text"
        ) from error
    if isinstance(value, dict):
        turns = value.get("turns")
        first = turns[0] if isinstance(turns, list) and turns else None
        value = next(
            (v for v in (first, value.get("prompt"), value.get("text")) if v is not None), None
        )
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgumentError(
            f"{where} has no text under turns, prompt or text; each line needs one of them"
        )
    return value
