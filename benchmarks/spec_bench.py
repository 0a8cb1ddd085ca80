"""Prompts from Spec-Bench's question file (Xia et al. 2024), first turns only. Knows no tokenizer.

Each line is JSON with a `category` and `turns`.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outrider.errors import InvalidArgumentError, NotFoundError

ROOT = Path(__file__).resolve().parent.parent
USUAL_PLACE = ROOT.parent / "shared" / "data" / "spec_bench" / "question.jsonl"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user's message."""

    category: str
    text: str


def found(path: Path | None) -> Path:
    """`path`, or the file beside the repository.

    Raises:
        NotFoundError: there is no such file.
    """
    chosen = USUAL_PLACE if path is None else path
    if not chosen.is_file():
        what = "no --prompts was given and" if path is None else "--prompts:"
        raise NotFoundError(
            f"{what} there is no file {chosen}; give Spec-Bench's question.jsonl with --prompts "
            "(https://github.com/hemingkx/Spec-Bench, data/spec_bench)"
        )
    return chosen


def read_prompts(path: Path, per_category: int, max_chars: int) -> list[Prompt]:
    """The first `per_category` prompts of each category that have at most `max_chars` characters.

    Raises:
        InvalidArgumentError: the file has another form, or no prompt is short enough.
    """
    taken: dict[str, list[Prompt]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            question = json.loads(line)
            prompt = Prompt(str(question["category"]), str(question["turns"][0]))
        except (ValueError, LookupError, TypeError) as error:
            raise InvalidArgumentError(
                f"line {number} of {path} is no question ({type(error).__name__}: {error}); JSON "
                'with "category" and "turns" is wanted'
            ) from error
        group = taken.setdefault(prompt.category, [])
        if len(group) < per_category and len(prompt.text) <= max_chars:
            group.append(prompt)
    prompts = [prompt for group in taken.values() for prompt in group]
    if not prompts:
        raise InvalidArgumentError(f"{path} has no prompt of at most {max_chars} characters")
    return prompts


def spread(prompts: Sequence[Prompt], limit: int) -> list[Prompt]:
    """At most `limit` of them, evenly from the first to the last.

    >>> [p.text for p in spread([Prompt("", c) for c in "abcdefg"], 3)]
    ['a', 'd', 'g']
    """
    if len(prompts) <= limit:
        return list(prompts)
    if limit == 1:
        return [prompts[0]]
    last = len(prompts) - 1
    return [prompts[round(i * last / (limit - 1))] for i in range(limit)]
