"""Figures of the acceptance benchmark and how they are shown. Knows no model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.machine import provenance


@dataclass(frozen=True)
class Figure:
    """One rule at one temperature, pooled over the prompts. `spread` is the standard deviation of
    the prompts' own tokens per pass; `accepted` the part of the drafted tokens that stood.
    """

    draft: str
    target: str
    rule: str
    temperature: float
    prompts: int
    tokens: int
    tokens_per_pass: float
    spread: float
    accepted: float


def table(figures: Sequence[Figure]) -> str:
    """Markdown, as the README shows it."""
    lines = [
        "| draft → target | temperature | rule | tokens per pass | ± between prompts | accepted |",
        "|---|---|---|---|---|---|",
        *(
            f"| {f.draft} → {f.target} | {f.temperature:g} | {f.rule} | {f.tokens_per_pass:.2f} "
            f"| {f.spread:.2f} | {f.accepted:.0%} |"
            for f in figures
        ),
    ]
    return "\n".join(lines) + "\n"


def table_of(result: Mapping[str, Any]) -> str:
    """The table of a JSON."""
    return table([Figure(**figure) for figure in result["figures"]])


def readme(result: Mapping[str, Any]) -> str:
    """What the README shows: where the figures come from, and the table."""
    return f"{provenance(result['machine'], command(result))}\n\n{table_of(result)}"


def page(result: Mapping[str, Any]) -> str:
    """One page about acceptance, with one tokenizer or with two."""
    title = "Acceptance with two tokenizers" if has_two(result) else "Acceptance by rule"
    settings = result["settings"]
    return f"""# {title}

{provenance(result["machine"], command(result))}

{settings["prompts"]} prompts, answers of {settings["tokens"]} tokens, chains of
{settings["num_speculative_tokens"]} drafted tokens, in lock step: every pass verifies a whole
chain. Tokens per pass is the mean acceptance length, 1 + accepted / passes: the target's own
token counts.

{table_of(result)}
What it does not show: speed (nothing is timed), services (all runs in one process), longer
answers, other pairs of models. `±` is the standard deviation between prompts, not the error of
the mean.
"""


def has_two(result: Mapping[str, Any]) -> bool:
    """Whether draft and target have two tokenizers."""
    return "deepened" not in result["settings"]


def command(result: Mapping[str, Any]) -> str:
    """What measured it, with the flags that matter."""
    settings = result["settings"]
    parts = ["python -m benchmarks.acceptance --prompts question.jsonl"]
    if has_two(result):
        parts.append("--vocabularies")
    parts.append(f"--per-category {settings['per_category']}")
    if settings["limit"] is not None:
        parts.append(f"--limit {settings['limit']}")
    return " ".join([*parts, f"--tokens {settings['tokens']}"])
