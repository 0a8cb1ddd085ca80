"""Forecasts against what really comes of them: `python -m benchmarks.forecast --json F`.

Real services with scripted models, a proxy that delays, over a grid of round trip, acceptance and
draft step. Each cell is measured as `outrider doctor` does, by a few answers, from which its speed
is forecast; in turns with them the same texts are timed again, with the project's defaults, one
request at a time.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from benchmarks import report
from benchmarks.forecast_rig import Cell, deployment
from benchmarks.machine import describe, json_path
from orchestrator.cli.console import FAILED, INTERRUPTED, MISUSED
from orchestrator.cli.doctor_probes import ask, probe_deep
from orchestrator.doctor.measurements import Probe, accepted_share, limits_of, situation
from orchestrator.doctor.samples import Sample
from orchestrator.forecast import forecast
from outrider.client import Client
from outrider.errors import InvalidArgumentError, OutriderError

RTTS_MS = (0.2, 20.0, 100.0)
DRIFTS = (0.05, 0.2, 0.5)
DRAFT_STEPS_MS = (4.0, 15.0)
TOKENS = 96
WITHIN = 0.15
"""What a forecast may be wrong by."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Forecast and measurement of one cell; rates in tokens a second of one request."""

    rtt_ms: float
    drift: float
    draft_step_ms: float
    accepted_share: float
    draft_pace_ms: float
    wire_ms: float
    alone_tokens_per_s: float
    forecast_tokens_per_s: float
    measured_tokens_per_s: float
    forecast_ratio: float
    measured_ratio: float
    bound_ratio: float

    @property
    def error(self) -> float:
        """How far the forecast is off, as a share of what was measured."""
        return self.forecast_tokens_per_s / self.measured_tokens_per_s - 1


def measure(cell: Cell, answers: int) -> Outcome:
    """One cell: calibrated by some answers, judged by others to the same seeds, so that the luck of
    the texts, which is the same, says nothing about the forecast.
    """
    with deployment(cell) as address, Client(address) as client:
        diagnosis = client.diagnose(with_bandwidth=False)
        probes = [probe_deep(client, _sample(0))]
        judged: list[Probe] = []
        for number in range(answers):  # in turns: what else the machine does hits both
            probes += _pair(client, 1 + number)
            judged += _pair(client, 1 + number)
    met = situation(
        probes,
        limits_of(diagnosis.limits),
        verify_wire_us=diagnosis.verify.round_trip_us,
        seen_round_trip_us=diagnosis.drafts[0].round_trip_us,
    )
    if met is None:
        raise OutriderError(f"nothing was drafted in {cell}")
    expected = forecast(met)
    measured = _rate([probe for probe in judged if probe.has_drafts])
    alone = _rate([probe for probe in judged if not probe.has_drafts])
    return Outcome(
        rtt_ms=cell.rtt_ms,
        drift=cell.drift,
        draft_step_ms=cell.draft_step_ms,
        accepted_share=round(accepted_share(p for p in probes if p.has_drafts) or 0.0, 3),
        draft_pace_ms=round(met.draft_step_us / 1000, 2),
        wire_ms=round(met.draft_wire_us / 1000, 2),
        alone_tokens_per_s=round(alone, 2),
        forecast_tokens_per_s=round(expected.tokens_per_s, 2),
        measured_tokens_per_s=round(measured, 2),
        forecast_ratio=round(expected.ratio, 3),
        measured_ratio=round(measured / alone, 3),
        bound_ratio=round(expected.bound_ratio, 3),
    )


def _pair(client: Client, seed: int) -> list[Probe]:
    """One text with drafts and without, in turns first."""
    order = (True, False) if seed % 2 else (False, True)
    return [
        ask(
            client,
            _sample(seed),
            max_tokens=TOKENS,
            temperature=1.0,
            with_drafts=with_drafts,
            seed=seed,
        )
        for with_drafts in order
    ]


def _sample(seed: int) -> Sample:
    return Sample("scripted", f"text number {seed}")


def _rate(probes: Sequence[Probe]) -> float:
    return statistics.harmonic_mean([probe.tokens_per_s for probe in probes])


def main(arguments: Sequence[str]) -> int:
    """Runs the grid, writes the JSON; status 1 where a forecast is off by more than it may be."""
    try:
        return _run(arguments)
    except OutriderError as error:
        sys.stderr.write(f"python -m benchmarks.forecast: {error.message}\n")
        return MISUSED if isinstance(error, InvalidArgumentError) else FAILED
    except KeyboardInterrupt:
        sys.stderr.write("python -m benchmarks.forecast: stopped; no process is left\n")
        return INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast")
    parser.add_argument("--json", type=Path, help="where the figures go; default: build/benchmarks")
    parser.add_argument("--answers", type=int, default=4, help="texts of a cell, each time")
    parser.add_argument("--quick", action="store_true", help="a corner of the grid")
    options = parser.parse_args(arguments)
    if options.answers < 1:
        parser.error(f"--answers is {options.answers}; give at least 1")
    grid = list(product(RTTS_MS, DRIFTS, DRAFT_STEPS_MS))
    if options.quick:
        grid = list(product(RTTS_MS[:2], DRIFTS[1:2], DRAFT_STEPS_MS[:1]))
    path = json_path(options.json, "forecast")
    machine = describe()
    outcomes = []
    for rtt_ms, drift, step_ms in grid:
        outcomes.append(measure(Cell(rtt_ms, drift, step_ms), options.answers))
        sys.stdout.write(_line(outcomes[-1]) + "\n")
        sys.stdout.flush()
    worst = max(outcomes, key=lambda outcome: abs(outcome.error))
    summary = {
        "worst_error": round(worst.error, 3),
        "median_error": round(statistics.median(abs(o.error) for o in outcomes), 3),
        "allowed_error": WITHIN,
    }
    sys.stdout.write(f"worst {worst.error:+.1%}, median {summary['median_error']:.1%}\n")
    figures = [{**asdict(o), "error": round(o.error, 3)} for o in outcomes]
    whole = {"machine": machine, "settings": {"tokens": TOKENS, "answers": options.answers}}
    result = {**whole, "summary": summary, "figures": figures}
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    drawn = report.redraw("forecast", path)
    return drawn if abs(worst.error) <= WITHIN else FAILED


def _line(o: Outcome) -> str:
    return (
        f"round trip {o.rtt_ms:5.1f} ms, draft step {o.draft_step_ms:4.1f} ms, accepted "
        f"{o.accepted_share:.2f}: forecast {o.forecast_tokens_per_s:6.1f} tokens/s "
        f"({o.forecast_ratio:.2f}x), measured {o.measured_tokens_per_s:6.1f} "
        f"({o.measured_ratio:.2f}x), off by {o.error:+.1%}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
