"""Answers to sample prompts, as what a forecast needs: times of passes by their rows, of the draft
and of the wire, and how often a drafted token is accepted. Pure.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

from orchestrator.guesses import OUTCOMES
from orchestrator.planner import Limits
from orchestrator.simulation import PassCosts, Situation
from orchestrator.texts import Profile
from outrider.client import DraftingLimits, DraftStats, Stats, Token

CREDIBLE = 2
"""Passes of one length that are enough for it to count."""

SHRINK = 12.0
"""A chance by position is drawn towards the pooled one as if by so many further tests."""


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One target pass: its rows and its time."""

    rows: int
    forward_us: int


@dataclass(frozen=True, slots=True)
class Probe:
    """One answer: to which kind of text, how it was asked for, and what it took. The first pass of
    an answer, which has the prompt, is not among `passes`, nor is the last, which may be cut short;
    `first_tokens` came from the first.
    """

    kind: str
    temperature: float
    has_drafts: bool
    stats: Stats
    first_tokens: int
    passes: tuple[PassRecord, ...]

    @classmethod
    def of(
        cls,
        kind: str,
        temperature: float,
        has_drafts: bool,
        stats: Stats,
        tokens: Sequence[Token],
    ) -> "Probe":
        """The probe that an answer is."""
        accepted = _accepted_by_pass(tokens)
        return cls(
            kind,
            temperature,
            has_drafts,
            stats,
            accepted[0] + 1 if accepted else 0,
            _records(stats, accepted),
        )

    @property
    def decode_us(self) -> int:
        """From the first token to the end."""
        return self.stats.total_us - self.stats.first_token_us

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second behind those of the first pass; 0 where there were none."""
        tokens = self.stats.emitted_tokens - self.first_tokens
        return 1e6 * tokens / self.decode_us if self.decode_us > 0 and tokens > 0 else 0.0


def _accepted_by_pass(tokens: Sequence[Token]) -> list[int]:
    """Accepted tokens of each pass: one ends with the token that the target wrote itself."""
    accepted = [0]
    for token in tokens:
        if token.draft:
            accepted[-1] += 1
        else:
            accepted.append(0)
    return accepted[:-1] if not tokens or not tokens[-1].draft else accepted


def _records(stats: Stats, accepted: Sequence[int]) -> tuple[PassRecord, ...]:
    """None where tokens and counts do not fit together, as after a stream was reopened."""
    if len(accepted) != len(stats.pass_rows) or len(accepted) != len(stats.forward_us):
        return ()
    passes = zip(stats.pass_rows, stats.forward_us, strict=True)
    return tuple(PassRecord(rows, us) for rows, us in passes)[1:-1]


def pass_costs(probes: Iterable[Probe]) -> PassCosts | None:
    """Median microseconds of a pass by its rows, never falling; None without any.

    Lengths that were seen once only do not count, unless there is nothing else.
    """
    by_rows: dict[int, list[int]] = defaultdict(list)
    for probe in probes:
        for record in probe.passes:
            by_rows[record.rows].append(record.forward_us)
    credible = {rows: us for rows, us in by_rows.items() if len(us) >= CREDIBLE} or by_rows
    if not credible:
        return None
    rows = sorted(credible)
    medians = _rising(
        [statistics.median(credible[r]) for r in rows], [len(credible[r]) for r in rows]
    )
    return PassCosts(tuple(rows), tuple(medians))


def acceptance(probes: Iterable[Probe]) -> tuple[float, ...]:
    """The chance that the target's token is among those that drafts guess for its place, after so
    many right guesses in a row as the entry's index, and beyond the last entry; empty where nothing
    was guessed.
    """
    answers = list(probes)
    guessed = _added(probe.stats.guessed_places for probe in answers)
    found = _added(probe.stats.found_places for probe in answers)
    if not sum(guessed):
        return ()
    pooled = sum(found) / sum(guessed)
    return tuple((f + SHRINK * pooled) / (g + SHRINK) for f, g in zip(found, guessed, strict=True))


def profile(probes: Iterable[Probe]) -> Profile | None:
    """How sure drafts were of what was right and of what was wrong; None: nothing was guessed."""
    counts = _added(probe.stats.guess_outcomes for probe in probes)
    if not sum(counts):
        return None
    rows = [tuple(counts[i : i + OUTCOMES]) for i in range(0, len(counts), OUTCOMES)]
    return Profile(tuple(rows))


def guessed_places(probes: Iterable[Probe]) -> int:
    """At how many places of these answers drafts guessed the target's token, rightly or not."""
    return sum(sum(probe.stats.guessed_places) for probe in probes)


def accepted_share(probes: Iterable[Probe]) -> float | None:
    """Right guesses per place that was guessed at; None where nothing was."""
    answers = list(probes)
    places = guessed_places(answers)
    return sum(sum(p.stats.found_places) for p in answers) / places if places else None


def alone_us(probes: Iterable[Probe]) -> float | None:
    """Microseconds from token to token of the target alone: median over its answers."""
    times = [1e6 / p.tokens_per_s for p in probes if not p.has_drafts and p.tokens_per_s]
    return statistics.median(times) if times else None


@dataclass(frozen=True, slots=True)
class DraftPace:
    """Microseconds from one draft step to the next: where it goes on below one node, and for each
    further one.
    """

    step_us: float
    row_us: float

    def of(self, nodes: float) -> float:
        """From a step below so many nodes to the next."""
        return self.step_us + self.row_us * (nodes - 1)


def draft_pace(probes: Iterable[Probe]) -> DraftPace | None:
    """None where no draft took part. The line through what steps took by the nodes that they go on
    below; where all went on below as many, a further one is taken to cost nothing.
    """
    answers = list(probes)
    most = max((len(d.paced_steps) for p in answers for d in p.stats.drafts), default=0)
    points: list[tuple[int, float, int]] = []
    for i in range(most):
        us = _median_mean(answers, partial(_paced, i))
        count = sum(_at(d.paced_steps, i) for p in answers for d in p.stats.drafts)
        if us is not None and count >= CREDIBLE:
            points.append((i + 1, us, count))
    if not points:
        step_us = draft_step_us(answers)
        return None if step_us is None else DraftPace(step_us, 0.0)
    total = sum(n for _, _, n in points)
    mean_x = sum(n * x for x, _, n in points) / total
    mean_y = sum(n * y for _, y, n in points) / total
    spread = sum(n * (x - mean_x) ** 2 for x, _, n in points)
    slope = sum(n * (x - mean_x) * (y - mean_y) for x, y, n in points) / spread if spread else 0.0
    # Neither a further node nor the first one takes less than nothing.
    row_us = min(max(slope, 0.0), mean_y / mean_x)
    return DraftPace(mean_y - row_us * (mean_x - 1), row_us)


def draft_step_us(probes: Iterable[Probe]) -> float | None:
    """Mean microseconds of a draft's pass, less than its pace; None where no draft took part."""
    return _median_mean(probes, lambda draft: (draft.step_us, draft.steps))


def draft_wire_us(probes: Iterable[Probe]) -> float | None:
    """Microseconds of a round trip of a session's messages between orchestrator and draft."""
    return _median_mean(probes, lambda draft: (draft.wire_us, draft.wire_rounds))


def pass_overhead_us(probes: Sequence[Probe]) -> float:
    """What a pass with drafts takes besides the model: what one without takes, and as much longer
    as accepting does.
    """
    alone = [probe for probe in probes if not probe.has_drafts]
    drafted = [probe for probe in probes if probe.has_drafts]
    cycle_us = alone_us(alone)
    forwards = [record.forward_us for probe in alone for record in probe.passes]
    if cycle_us is None or not forwards:
        return 0.0
    base = max(0.0, cycle_us - statistics.fmean(forwards))
    return base + max(0.0, _accept_us(drafted) - _accept_us(alone))


def limits_of(limits: DraftingLimits) -> Limits:
    """What the planner may do by these settings."""
    return Limits(
        num_speculative_tokens=limits.num_speculative_tokens or 1,
        width=limits.width or 1,
        proposal_top_k=limits.width or 1,
        wait_nodes=limits.wait_nodes,
        max_wait_us=limits.max_wait_us,
        adaptive=limits.adaptive,
        run_ahead=limits.run_ahead,
    )


def situation(
    probes: Sequence[Probe], limits: Limits, *, verify_wire_us: float, seen_round_trip_us: float
) -> Situation | None:
    """What the probes met, for all kinds of text together; None where no draft took part, or
    nothing that it drafted was verified.
    """
    drafted = [probe for probe in probes if probe.has_drafts]
    costs, chances = pass_costs(drafted), acceptance(drafted)
    pace, wire, alone = draft_pace(drafted), draft_wire_us(drafted), alone_us(probes)
    if costs is None or not chances or pace is None or alone is None:
        return None
    return Situation(
        costs=costs,
        acceptance=chances,
        draft_step_us=pace.step_us,
        draft_row_us=pace.row_us,
        draft_wire_us=seen_round_trip_us if wire is None else wire,
        limits=limits,
        verify_wire_us=verify_wire_us,
        pass_overhead_us=pass_overhead_us(probes),
        turnaround_us=_turnaround_us(probes),
        seen_round_trip_us=seen_round_trip_us,
        seen_step_us=draft_step_us(drafted) or 0.0,
        alone_us=alone,
        profile=profile(drafted),
    )


def for_text(whole: Situation, probes: Iterable[Probe]) -> Situation:
    """The same situation with what these probes tell of the texts."""
    answers = list(probes)
    return replace(
        whole,
        acceptance=acceptance(answers) or whole.acceptance,
        profile=profile(answers) or whole.profile,
    )


def achieved_ratio(probes: Sequence[Probe]) -> float | None:
    """How much faster answers with drafts were than the same without, over all of them together.

    Of answers to one text in one way the last counts: a warm-up by deep trees comes before it.
    """
    latest = {(probe.kind, probe.temperature, probe.has_drafts): probe for probe in probes}
    pairs = [
        (probe, other)
        for probe in latest.values()
        for other in latest.values()
        if probe.has_drafts
        and not other.has_drafts
        and (probe.kind, probe.temperature) == (other.kind, other.temperature)
        and probe.tokens_per_s
        and other.tokens_per_s
    ]
    if not pairs:
        return None
    return sum(1 / b.tokens_per_s for _, b in pairs) / sum(1 / a.tokens_per_s for a, _ in pairs)


def _median_mean(
    probes: Iterable[Probe], sum_and_count: Callable[[DraftStats], tuple[int, int]]
) -> float | None:
    """Median over the answers of a mean in each: what disturbs one of them does not count."""
    means = []
    for probe in probes:
        found = [sum_and_count(draft) for draft in probe.stats.drafts]
        count = sum(number for _, number in found)
        if count:
            means.append(sum(total for total, _ in found) / count)
    return statistics.median(means) if means else None


def _added(counts: Iterable[Sequence[int]]) -> list[int]:
    """Sums, entry by entry; the shorter ones end with zeros."""
    return [sum(entries) for entries in zip_longest(*counts, fillvalue=0)]


def _paced(index: int, draft: DraftStats) -> tuple[int, int]:
    return _at(draft.paced_us, index), _at(draft.paced_steps, index)


def _at(counts: Sequence[int], index: int) -> int:
    return counts[index] if index < len(counts) else 0


def _turnaround_us(probes: Sequence[Probe]) -> float:
    """From a verdict to the next pass of a target that waits for nobody."""
    waits = [us for p in probes if not p.has_drafts for us in p.stats.wait_us[1:]]
    return statistics.median(waits) if waits else 0.0


def _accept_us(probes: Sequence[Probe]) -> float:
    passes = sum(probe.stats.target_passes for probe in probes)
    return sum(probe.stats.accept_us for probe in probes) / passes if passes else 0.0


def _rising(values: list[float], weights: list[int]) -> list[float]:
    """The nearest sequence that never falls (pool adjacent violators, Ayer et al. 1955)."""
    pools: list[tuple[float, int, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pools.append((value, weight, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m, i), (b, n, j) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n, i + j)]
    return [value for value, _, count in pools for _ in range(count)]
