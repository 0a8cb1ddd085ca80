"""Why drafts bring less than they could, from what was measured: the classic traps, each named with
what to do. Pure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.doctor.findings import Finding, Severity
from orchestrator.doctor.measurements import (
    Probe,
    accepted_share,
    achieved_ratio,
    for_text,
    guessed_places,
    pass_costs,
    situation,
)
from orchestrator.forecast import (
    MOST_ROUND_TRIP_US,
    PAYS,
    BestDepth,
    Forecast,
    best_depth,
    break_even_round_trip_us,
    forecast,
    needed_acceptance,
    slowest_draft_step_us,
)
from orchestrator.planner import Limits
from orchestrator.simulation import Situation
from orchestrator.texts import found_share

SMALL_TARGET_US = 5_000
SLOW_DRAFT = 0.5
"""A draft that takes this share of a target pass for a token leaves little to gain."""

FEW_TESTED = 12
DEAR_ROWS = 2.0
DISTURBED = 1.25
FALLS_SHORT = 0.75
WORTH_TELLING = 1.05


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is to be expected of drafts here, for all sampled texts together and for each kind."""

    met: Situation
    now: Forecast
    best: BestDepth
    break_even_us: float | None
    by_kind: Mapping[str, Forecast]
    shares: Mapping[str, float]
    achieved: float | None

    @property
    def pays(self) -> bool:
        """Whether drafts make answers faster, at the depth that is best for it."""
        return self.best.forecast.ratio >= PAYS


def expect(
    probes: Sequence[Probe], limits: Limits, *, verify_wire_us: float, seen_round_trip_us: float
) -> Expectation | None:
    """None where nothing was drafted, or nothing drafted was verified."""
    met = situation(
        probes, limits, verify_wire_us=verify_wire_us, seen_round_trip_us=seen_round_trip_us
    )
    if met is None:
        return None
    by_kind: dict[str, list[Probe]] = {}
    for probe in probes:
        if probe.has_drafts:
            by_kind.setdefault(probe.kind, []).append(probe)
    shares = {kind: accepted_share(of_kind) for kind, of_kind in by_kind.items()}
    return Expectation(
        met=met,
        now=forecast(met),
        best=best_depth(met),
        break_even_us=break_even_round_trip_us(met),
        by_kind={kind: forecast(for_text(met, of_kind)) for kind, of_kind in by_kind.items()},
        shares={kind: share for kind, share in shares.items() if share is not None},
        achieved=achieved_ratio(probes),
    )


def speed_findings(expected: Expectation, probes: Sequence[Probe]) -> list[Finding]:
    """The traps that are seen, those that keep drafts from paying first."""
    return [
        *_does_not_pay(expected),
        *_target_too_small(expected.met),
        *_draft_too_slow(expected),
        *_too_far(expected),
        *_low_acceptance(expected, probes),
        *_dear_rows(expected.met),
        *_disturbed(probes),
        *_falls_short(expected),
        *_other_depth(expected),
    ]


def no_drafting_finding(draft_names: Sequence[str]) -> Finding:
    """Drafts are there, and nothing they drafted was verified."""
    return Finding(
        Severity.PROBLEM,
        "nothing drafted",
        f"nothing that {' and '.join(draft_names)} drafted came in time to be verified",
        "look at what is said about the drafts above; a draft that only looks up the prompt "
        "(ngram:) has nothing to propose where a text repeats nothing",
    )


def _does_not_pay(expected: Expectation) -> Iterator[Finding]:
    if expected.pays:
        return
    met = expected.met
    remedies = []
    slowest = slowest_draft_step_us(met)
    if slowest is not None and slowest < met.draft_step_us:
        remedies.append(
            f"a draft that takes at most {slowest / 1000:.1f} ms a token (it takes "
            f"{met.draft_step_us / 1000:.1f})"
        )
    needed = needed_acceptance(met)
    if needed is not None and needed > _pooled(met):
        remedies.append(f"a draft of which {needed:.0%} is accepted (it is {_pooled(met):.0%})")
    if expected.break_even_us is not None and expected.break_even_us < met.draft_wire_us:
        remedies.append(f"a draft at most {expected.break_even_us / 1000:.0f} ms away")
    yield Finding(
        Severity.PROBLEM,
        "drafts do not pay",
        f"drafts do not pay here: {expected.best.forecast.ratio:.2f}x is the best to be expected",
        f"what would pay: {'; or '.join(remedies)}"
        if remedies
        else "do without drafts (--draft none), or use a larger target",
    )


def _target_too_small(met: Situation) -> Iterator[Finding]:
    bare_us = met.costs.of(1)
    if bare_us < SMALL_TARGET_US or met.pass_overhead_us > bare_us:
        yield Finding(
            Severity.PROBLEM,
            "target too small",
            f"the target takes {bare_us / 1000:.1f} ms for a pass, and what goes with a pass "
            f"{met.pass_overhead_us / 1000:.1f} ms: it is too small for drafts to gain much",
            "drafts are for targets of tens of milliseconds a token; use this one alone",
        )


def _draft_too_slow(expected: Expectation) -> Iterator[Finding]:
    met = expected.met
    bare_us = met.token_alone_us
    if met.draft_step_us > SLOW_DRAFT * bare_us:
        yield Finding(
            Severity.PROBLEM,
            "draft too slow",
            f"the draft takes {met.draft_step_us / 1000:.1f} ms for a token and the target "
            f"{bare_us / 1000:.1f}: it is too big or too slow for this target",
            f"use a smaller or more quantised draft, or a faster machine for it; below "
            f"{0.2 * bare_us / 1000:.1f} ms a token is good",
        )


def _too_far(expected: Expectation) -> Iterator[Finding]:
    limit, have = expected.break_even_us, expected.met.draft_wire_us
    if limit is not None and limit < MOST_ROUND_TRIP_US and have > limit:
        yield Finding(
            Severity.PROBLEM,
            "too far",
            f"the draft is {have / 1000:.0f} ms away, and drafts pay up to {limit / 1000:.0f} ms",
            "use a nearer draft, or put the orchestrator and the verifier nearer to it",
        )


def _low_acceptance(expected: Expectation, probes: Sequence[Probe]) -> Iterator[Finding]:
    for kind, outcome in expected.by_kind.items():
        share = expected.shares.get(kind)
        of_kind = [probe for probe in probes if probe.has_drafts and probe.kind == kind]
        if share is None or guessed_places(of_kind) < FEW_TESTED or outcome.ratio >= PAYS:
            continue
        yield Finding(
            Severity.PROBLEM if expected.pays else Severity.ADVICE,
            "low acceptance",
            f"acceptance is too low for texts of the kind {kind}: {share:.0%} of what the draft "
            f"says is what the target says, and drafts bring {outcome.ratio:.2f}x there",
            "use a draft of the target's family, or one that was tuned on such texts; requests of "
            "this kind can do without (max_drafts 0)",
        )


def _dear_rows(met: Situation) -> Iterator[Finding]:
    most = min(1 + met.limits.num_speculative_tokens, met.costs.rows[-1])
    ratio = met.costs.of(most) / met.costs.of(1)
    if most > 1 and ratio > DEAR_ROWS:
        yield Finding(
            Severity.ADVICE,
            "dear rows",
            f"a target pass of {most} rows takes {ratio:.1f} times as long as one of a single row: "
            "verifying is not nearly free here, as it is where memory is the limit",
            "give the target more threads or a GPU, or less quantised weights, whose passes of "
            "several rows are cheaper on CPUs",
        )


def _disturbed(probes: Sequence[Probe]) -> Iterator[Finding]:
    alone = pass_costs(probe for probe in probes if not probe.has_drafts)
    beside = pass_costs(probe for probe in probes if probe.has_drafts)
    if alone is None or beside is None or beside.rows[0] != 1:
        return
    ratio = beside.of(1) / alone.of(1)
    if ratio > DISTURBED:
        yield Finding(
            Severity.PROBLEM,
            "draft disturbs target",
            f"a bare target pass takes {ratio:.1f} times as long while drafts work: they take its "
            "cores or its memory bandwidth",
            "put the draft on another machine, or give both their share of the cores (--threads)",
        )


def _falls_short(expected: Expectation) -> Iterator[Finding]:
    if expected.achieved is None or not expected.pays:
        return
    if expected.achieved < FALLS_SHORT * expected.now.ratio:
        yield Finding(
            Severity.ADVICE,
            "falls short",
            f"{expected.now.ratio:.2f}x was to be expected and {expected.achieved:.2f}x came of it",
            "look for what else uses these machines or the line between them, and measure again "
            "with more tokens (--max-tokens)",
        )


def _other_depth(expected: Expectation) -> Iterator[Finding]:
    best, now = expected.best, expected.now
    if expected.pays and best.forecast.ratio > WORTH_TELLING * now.ratio:
        yield Finding(
            Severity.ADVICE,
            "depth",
            f"{best.num_speculative_tokens} speculative tokens promise {best.forecast.ratio:.2f}x, "
            f"the {expected.met.limits.num_speculative_tokens} that are set {now.ratio:.2f}x",
            f"start the orchestrator with --num-speculative-tokens {best.num_speculative_tokens}",
        )


def _pooled(met: Situation) -> float:
    return found_share(met.acceptance)
