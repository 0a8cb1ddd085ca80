"""From what requests took to the rows of a report. Pure: knows no client and no clock.

A *measurement* is one configuration once; a *row* is one configuration over all its repetitions,
set against the target alone. Times in seconds where they come in and in milliseconds in rows.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.cli.bench_plan import Configuration
from orchestrator.cli.summary import idle_share
from outrider.client import Stats

SAME_ARRIVAL_S = 0.0001
"""Tokens nearer to each other than this came in one message: reading one takes microseconds, and
two messages of one answer are a target pass apart."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One request: when it was sent, when each token came (one clock), and the server's counts."""

    sent_s: float
    token_s: tuple[float, ...]
    stats: Stats


@dataclass(frozen=True, slots=True)
class Measurement:
    """One configuration once. `problems` are the errors of requests that failed."""

    configuration: Configuration
    repetition: int
    answers: tuple[Answer, ...]
    problems: tuple[str, ...] = ()

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all answers per second from the first request to the last token; 0 without any.

        The clients run out of requests one after the other, so the end of a measurement is less
        crowded than its middle.
        """
        times = [time for answer in self.answers for time in answer.token_s]
        if not times:
            return 0.0
        return len(times) / max(max(times) - min(a.sent_s for a in self.answers), 1e-9)


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration. The spread of a figure is the standard deviation over repetitions.

    `ratio_to_target_alone` is the mean over repetitions of each one's own ratio; None where the
    target alone was not measured. `itl` is the time between arrivals, and one arrival may bring
    several tokens; `tpot` spreads it over tokens. `acceptance_length` is what a target pass emits,
    its own token counted. For `target_idle_share` of the time the target stood idle between passes
    although it could have begun one.
    """

    concurrency: int
    temperature: float | None
    max_drafts: int | None
    num_speculative_tokens: int | None
    repetitions: int
    requests: int
    failed: int
    problem: str
    tokens: int
    tokens_per_s: float
    tokens_per_s_spread: float
    tokens_per_s_per_request: float
    ratio_to_target_alone: float | None
    ratio_spread: float
    ttft_p50_ms: float
    ttft_p95_ms: float
    itl_p50_ms: float
    itl_p95_ms: float
    tpot_p50_ms: float
    acceptance_length: float
    passes_per_token: float
    acceptance_rate: float
    bytes_per_round: float
    messages_per_round: float
    target_idle_share: float

    @property
    def is_alone(self) -> bool:
        """Whether no draft took part."""
        return self.max_drafts == 0


def rows(measurements: Sequence[Measurement]) -> tuple[Row, ...]:
    """A row for each configuration, in the order in which they were first measured."""
    by_configuration: dict[Configuration, list[Measurement]] = {}
    # In the order of the sweep, whichever one a repetition began with.
    for measurement in sorted(measurements, key=lambda m: m.repetition):
        by_configuration.setdefault(measurement.configuration, []).append(measurement)
    return tuple(
        row_of(configuration, own, by_configuration.get(configuration.alone, ()))
        for configuration, own in by_configuration.items()
    )


def row_of(
    configuration: Configuration, own: Sequence[Measurement], alone: Sequence[Measurement]
) -> Row:
    """The row of one configuration; `alone` are the measurements of the target alone."""
    answers = [answer for measurement in own for answer in measurement.answers]
    problems = [problem for measurement in own for problem in measurement.problems]
    speeds = [m.tokens_per_s for m in own if m.answers]
    ratios = _ratios(own, alone)
    stats = [answer.stats for answer in answers]
    tokens = sum(one.emitted_tokens for one in stats)
    passes = sum(one.target_passes for one in stats)
    verified = sum(one.verified_tokens for one in stats)
    ttft = [(a.token_s[0] - a.sent_s) * 1000 for a in answers if a.token_s]
    gaps = [gap * 1000 for answer in answers for gap in arrival_gaps(answer.token_s)]
    return Row(
        concurrency=configuration.concurrency,
        temperature=configuration.temperature,
        max_drafts=configuration.max_drafts,
        num_speculative_tokens=configuration.num_speculative_tokens,
        repetitions=len(own),
        requests=len(answers) + len(problems),
        failed=len(problems),
        problem=problems[0] if problems else "",
        tokens=tokens,
        tokens_per_s=mean(speeds),
        tokens_per_s_spread=spread(speeds),
        tokens_per_s_per_request=percentile([one.tokens_per_s for one in stats], 50),
        ratio_to_target_alone=mean(ratios) if ratios else None,
        ratio_spread=spread(ratios),
        ttft_p50_ms=percentile(ttft, 50),
        ttft_p95_ms=percentile(ttft, 95),
        itl_p50_ms=percentile(gaps, 50),
        itl_p95_ms=percentile(gaps, 95),
        tpot_p50_ms=percentile([t for a in answers for t in time_per_token_ms(a.token_s)], 50),
        acceptance_length=_per(tokens, passes),
        passes_per_token=_per(passes, tokens),
        acceptance_rate=_per(sum(one.accepted_tokens for one in stats), verified),
        bytes_per_round=_per(sum(one.wire_bytes for one in stats), passes),
        messages_per_round=_per(sum(one.messages for one in stats), passes),
        target_idle_share=idle_share(stats),
    )


def arrival_gaps(token_s: Sequence[float]) -> list[float]:
    """Seconds between arrivals: tokens that came in one message are one arrival.

    >>> [round(gap, 3) for gap in arrival_gaps([1.0, 1.00001, 1.00002, 1.5])]
    [0.5]
    """
    gaps = [later - earlier for earlier, later in pairwise(token_s)]
    return [gap for gap in gaps if gap > SAME_ARRIVAL_S]


def time_per_token_ms(token_s: Sequence[float]) -> list[float]:
    """Milliseconds from the first token to the last, for each one behind the first; [] for one."""
    if len(token_s) < 2:
        return []
    return [(token_s[-1] - token_s[0]) * 1000 / (len(token_s) - 1)]


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of 100 lie, interpolated; 0 of none.

    >>> percentile([1.0, 2.0, 3.0], 50), percentile([1.0, 2.0], 95), percentile([], 50)
    (2.0, 1.95, 0.0)
    """
    if not values:
        return 0.0
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below, above = ordered[math.floor(place)], ordered[math.ceil(place)]
    return below + (above - below) * (place - math.floor(place))


def mean(values: Sequence[float]) -> float:
    """0 of none."""
    return statistics.fmean(values) if values else 0.0


def spread(values: Sequence[float]) -> float:
    """Standard deviation; 0 of fewer than two."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _ratios(own: Sequence[Measurement], alone: Sequence[Measurement]) -> list[float]:
    """Each repetition against the target alone in the same repetition."""
    base = {m.repetition: m.tokens_per_s for m in alone if m.answers}
    return [m.tokens_per_s / base[m.repetition] for m in own if m.answers and m.repetition in base]


def _per(count: float, of: float) -> float:
    return count / of if of else 0.0
