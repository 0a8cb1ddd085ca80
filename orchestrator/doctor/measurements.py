"""Answers to sample prompts, as what a forecast needs: times of passes by their rows, of the draft
and of the wire, and how often a drafted token is accepted. Pure.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from orchestrator.planner import Limits
from orchestrator.simulation import PassCosts, Situation
from outrider.client import DraftingLimits, DraftStats, Stats, Token

CREDIBLE = 2
"""Passes of one length that are enough for it to count."""

SHRINK = 12.0
MOST_POSITIONS = 8
"""A chance by position is drawn towards the pooled one as if by so many further tests."""


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One target pass: its rows, its time, how many drafted tokens it verified and accepted."""

    rows: int
    forward_us: int
    drafted: int
    accepted: int


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
    passes = zip(stats.pass_rows, stats.forward_us, accepted, strict=True)
    return tuple(PassRecord(rows, us, rows - 1, count) for rows, us, count in passes)[1:-1]


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
    """The chance that a drafted token is accepted after i others in a row were, and beyond the last
    entry; empty where nothing was tested.

    A pass that accepts all it was given tells nothing about the next token, but the row goes on.
    """
    tested = [0.0] * MOST_POSITIONS
    accepted = [0.0] * MOST_POSITIONS
    for probe in probes:
        streak = 0
        for record in probe.passes:
            for index in range(record.accepted + (record.drafted > record.accepted)):
                position = min(streak + index, MOST_POSITIONS - 1)
                tested[position] += 1
                accepted[position] += index < record.accepted
            is_miss = record.drafted > record.accepted
            streak = 0 if is_miss else streak + record.accepted
    if not sum(tested):
        return ()
    pooled = sum(accepted) / sum(tested)
    return tuple(
        (accepted[i] + SHRINK * pooled) / (tested[i] + SHRINK) for i in range(MOST_POSITIONS)
    )


def accepted_share(probes: Iterable[Probe]) -> float | None:
    """Accepted per tested token, all positions together; None where nothing was tested."""
    records = [record for probe in probes for record in probe.passes]
    tested = sum(r.accepted + (r.drafted > r.accepted) for r in records)
    return sum(r.accepted for r in records) / tested if tested else None


def alone_us(probes: Iterable[Probe]) -> float | None:
    """Microseconds from token to token of the target alone: median over its answers."""
    times = [1e6 / p.tokens_per_s for p in probes if not p.has_drafts and p.tokens_per_s]
    return statistics.median(times) if times else None


def draft_pace_us(probes: Iterable[Probe]) -> float | None:
    """Microseconds from one drafted token to the next; None where no draft took part."""
    asked = list(probes)
    pace = _median_mean(asked, lambda draft: (draft.pace_us, draft.paced_nodes))
    return draft_step_us(asked) if pace is None else pace


def draft_step_us(probes: Iterable[Probe]) -> float | None:
    """Microseconds of a draft's pass, less than its pace; None where no draft took part."""
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
    """What the planner may do for a chain by these settings."""
    return Limits(
        num_speculative_tokens=limits.num_speculative_tokens or 1,
        width=1,
        proposal_top_k=1,
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
    pace, wire, alone = draft_pace_us(drafted), draft_wire_us(drafted), alone_us(probes)
    if costs is None or not chances or pace is None or alone is None:
        return None
    return Situation(
        costs=costs,
        acceptance=chances,
        draft_step_us=pace,
        draft_wire_us=seen_round_trip_us if wire is None else wire,
        limits=limits,
        verify_wire_us=verify_wire_us,
        pass_overhead_us=pass_overhead_us(probes),
        turnaround_us=_turnaround_us(probes),
        seen_round_trip_us=seen_round_trip_us,
        seen_step_us=draft_step_us(drafted) or 0.0,
        alone_us=alone,
    )


def for_text(whole: Situation, probes: Iterable[Probe]) -> Situation:
    """The same situation with the acceptance of these probes."""
    return replace(whole, acceptance=acceptance(probes) or whole.acceptance)


def achieved_ratio(probes: Sequence[Probe]) -> float | None:
    """How much faster answers with drafts were than the same without, over all of them together.

    Of answers to one text in one way the last counts: a warm-up by long chains comes before it.
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
