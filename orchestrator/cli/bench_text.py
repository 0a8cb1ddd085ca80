"""Rows of a benchmark as a sentence, Markdown, CSV and JSON. Pure: rows in, text out."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Literal

from orchestrator.cli.bench_rows import Row
from orchestrator.cli.summary import SAME_SPEED, counted

Format = Literal["md", "csv", "json"]

ABOUT = (
    "ratio: against the target alone in the same repetition. ITL: between arrivals; one may bring "
    "several tokens. TTFT: of prompts that the target has read before. ±: standard deviation over "
    "repetitions, 0 with one. target idle: between passes, although it could have begun one."
)
"""What the table does not say by itself."""

_HEADERS = (
    "clients",
    "temperature",
    "drafts",
    "speculative tokens",
    "tokens/s",
    "ratio",
    "tokens/s each",
    "TTFT p50 / p95 ms",
    "ITL p50 / p95 ms",
    "tokens a pass",
    "passes a token",
    "accepted",
    "bytes a round",
    "target idle",
)


def sentence(rows: Sequence[Row]) -> str:
    """What it comes to, about the configuration in which drafts help most.

    It speaks of a spread only where there were several repetitions.
    """
    measured = [row for row in rows if row.tokens]
    compared = [row for row in measured if row.ratio_to_target_alone and not row.is_alone]
    if not compared:
        return _without_comparison(measured)
    best = max(compared, key=lambda row: row.ratio_to_target_alone or 0.0)
    alone = next(
        row
        for row in measured
        if row.is_alone
        and (row.concurrency, row.temperature) == (best.concurrency, best.temperature)
    )
    ratio = best.ratio_to_target_alone or 0.0
    if ratio > 1 + SAME_SPEED:
        outcome = f"drafts make it {ratio:.1f}x as fast"
    elif ratio < 1 - SAME_SPEED:
        outcome = f"drafts do not pay: {ratio:.2f}x the speed of the target alone"
    else:
        outcome = f"drafts neither help nor hurt ({ratio:.2f}x)"
    return (
        f"At {counted(best.concurrency, 'client')} {outcome} ({_speed(best)} tokens/s against "
        f"{_speed(alone)}), accepting {best.acceptance_length - 1:.1f} drafted tokens a pass"
        f"{_choices(best, compared)}{_crowded(best, compared)}."
        f"{' One repetition is a hint, no more.' if best.repetitions < 2 else ''}"
    )


def markdown(rows: Sequence[Row]) -> str:
    """A table with a line for each row; what failed is told below it."""
    lines = [
        f"| {' | '.join(_HEADERS)} |",
        f"|{'---|' * len(_HEADERS)}",
        *(f"| {' | '.join(_cells(row))} |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def as_csv(rows: Sequence[Row]) -> str:
    """A line of names, then one for each row; what is unset is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue()


def as_json(rows: Sequence[Row], about: Mapping[str, object]) -> str:
    """An object with the sentence, `about` (the deployment, the sweep) and the rows."""
    whole = {"sentence": sentence(rows), **about, "rows": [asdict(row) for row in rows]}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def report(rows: Sequence[Row], form: Format, about: Mapping[str, object]) -> str:
    """The rows in one of the three forms; Markdown begins with the sentence."""
    if form == "json":
        return as_json(rows, about)
    if form == "csv":
        return as_csv(rows)
    return f"{sentence(rows)}\n\n{markdown(rows)}\n{ABOUT}\n"


def problems(rows: Sequence[Row]) -> list[str]:
    """A line for each row with requests that failed."""
    return [
        f"at {counted(row.concurrency, 'client')} {row.failed} of "
        f"{counted(row.requests, 'request')} failed: {row.problem}"
        for row in rows
        if row.failed
    ]


def _without_comparison(measured: Sequence[Row]) -> str:
    if not measured:
        return "Nothing was measured."
    best = max(measured, key=lambda row: row.tokens_per_s)
    who = "the target alone gives" if best.is_alone else "there are"
    return (
        f"At {counted(best.concurrency, 'client')} {who} {_speed(best)} tokens/s, "
        f"{best.acceptance_length:.1f} tokens a pass; nothing was measured to compare it with."
    )


def _cells(row: Row) -> tuple[str, ...]:
    asked = (
        f"{row.concurrency}",
        "default" if row.temperature is None else f"{row.temperature:g}",
        "default" if row.max_drafts is None else f"{row.max_drafts}",
        "" if row.is_alone else _speculative(row, "default"),
    )
    if not row.tokens:
        return (*asked, "failed", *("" for _ in _HEADERS[len(asked) + 1 :]))
    ratio = row.ratio_to_target_alone
    return (
        *asked,
        _with_spread(row, f"{row.tokens_per_s:.1f}", f"{row.tokens_per_s_spread:.1f}"),
        "" if ratio is None else _with_spread(row, f"{ratio:.2f}", f"{row.ratio_spread:.2f}"),
        f"{row.tokens_per_s_per_request:.1f}",
        f"{row.ttft_p50_ms:.0f} / {row.ttft_p95_ms:.0f}",
        f"{row.itl_p50_ms:.1f} / {row.itl_p95_ms:.1f}",
        f"{row.acceptance_length:.2f}",
        f"{row.passes_per_token:.2f}",
        "" if row.is_alone else f"{row.acceptance_rate:.0%}",
        f"{row.bytes_per_round:.0f}",
        f"{row.target_idle_share:.1%}",
    )


def _choices(best: Row, compared: Sequence[Row]) -> str:
    """What was best of what was tried more than one of."""
    told = []
    if len({row.num_speculative_tokens for row in compared}) > 1:
        told.append(_speculative(best))
    if len({row.max_drafts for row in compared}) > 1:
        count = best.max_drafts
        told.append("all drafts" if count is None else counted(count, "draft"))
    if len({row.temperature for row in compared}) > 1 and best.temperature is not None:
        told.append(f"temperature {best.temperature:g}")
    return f"; best: {', '.join(told)}" if told else ""


def _crowded(best: Row, compared: Sequence[Row]) -> str:
    """What drafts bring where most clients ask at once, if that is not where they bring most."""
    most = max(row.concurrency for row in compared)
    if most == best.concurrency:
        return ""
    ratio = max(r.ratio_to_target_alone or 0.0 for r in compared if r.concurrency == most)
    return f"; at {counted(most, 'client')} {ratio:.1f}x"


def _speed(row: Row) -> str:
    return _with_spread(row, f"{row.tokens_per_s:.0f}", f"{row.tokens_per_s_spread:.0f}")


def _with_spread(row: Row, told: str, spread: str) -> str:
    return told if row.repetitions < 2 else f"{told} ± {spread}"


def _speculative(row: Row, default: str = "the deployment's speculative tokens") -> str:
    count = row.num_speculative_tokens
    if count is None:
        return default
    return f"{count}" if default == "default" else counted(count, "speculative token")
