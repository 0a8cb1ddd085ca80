"""The forecast rig's figures as a page and for the README. Pure: JSON in, Markdown out."""

from collections.abc import Mapping, Sequence
from typing import Any

Result = Mapping[str, Any]


def table(figures: Sequence[Mapping[str, Any]]) -> str:
    """A row for each cell of the grid, in the order of measuring."""
    head = (
        "| round trip | draft step | accepted | forecast | measured | forecast is off by |\n"
        "|---|---|---|---|---|---|\n"
    )
    return head + "".join(
        f"| {f['rtt_ms']:g} ms | {f['draft_step_ms']:g} ms | {f['accepted_share']:.0%} | "
        f"{f['forecast_ratio']:.2f}x | {f['measured_ratio']:.2f}x | {f['error']:+.0%} |\n"
        for f in figures
    )


def readme(result: Result) -> str:
    """The figures with what they mean, in short."""
    summary = result["summary"]
    return f"""{_provenance(result)}

{table(result["figures"])}
The worst forecast of tokens a second is off by {abs(summary["worst_error"]):.0%}, half of them
by at most {summary["median_error"]:.0%}. [docs/benchmarks/forecast.md](docs/benchmarks/forecast.md)
says how, and what that does not show.
"""


def page(result: Result) -> str:
    """Everything about the figures."""
    settings, summary = result["settings"], result["summary"]
    return f"""# Forecasts against measurements

{_provenance(result)}

`outrider doctor` tells what drafts will bring. Here its forecast is held against real services:
scripted models (a target pass of 40 ms and 0.2 ms a row), a draft behind a proxy that delays, one
request at a time, temperature 1, the project's defaults. In each cell {settings["answers"]} texts
of {settings["tokens"]} tokens, with drafts and without, are what the forecast knows; the same texts
again, in turns with them, are what it is judged by: the forecast has to get the times right, not
to guess how lucky other texts will be, which moves tokens/s by about as much. Ratios are to the
target alone, measured in the same cell.

{table(result["figures"])}
Worst error of tokens a second: {summary["worst_error"]:+.1%}; median:
{summary["median_error"]:.1%}; allowed: {summary["allowed_error"]:.0%}.

What this does not show: real models, whose acceptance varies along a text more than a scripted
one's and whose passes disturb each other on one machine; several requests at once, which share the
target's passes; several drafts, which the forecast takes for one; a real network, which loses
packets and jitters.
"""


def _provenance(result: Result) -> str:
    machine = result["machine"]
    command = (
        f"python -m benchmarks.forecast --answers {result['settings']['answers']} "
        "--json docs/benchmarks/forecast.json"
    )
    return (
        f"Measured at commit {machine['commit']} ({str(machine['measured_at'])[:10]}) on "
        f"{machine['cores']} cores\n({machine['cpu']}, {machine['system']}), load before "
        f"{machine['load_before']}, by\n`{command}`."
    )
