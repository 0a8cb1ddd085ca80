"""How far a session's drafts run ahead, how much of it a pass verifies, and how long a pass waits.

Pure: observations in, a plan out. Everything here looks at past verdicts and times only, never at a
token that is still undecided, so no plan can anticipate (exactness, trap 2).

One rule carries most of it. A drafted token that is accepted with chance s is worth s tokens; the
row that verifies it makes the pass longer by `row_us`. While the verifier emits R tokens per
microsecond, for all its sessions, the row pays if s >= R * row_us. So that is the least chance
(`ReadinessPolicy.min_chance`), the same for every session of a verifier, and shared load is shared
by survival. Where no token reaches it nothing is verified: the target is as fast as alone.

Depth, width and `max_rows` are constants of the limits; planned are the least chance, how deep a
tree a pass waits for and how long, and whether drafts rest. How deep, how wide and how many rows
comes of the least chance, node by node, and needs no numbers of its own. Drafts run ahead down to
a power of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from outrider.pass_times import MEMORY, PassTimes
from outrider.plans import DraftPart, DraftPlan, ReadinessPolicy
from outrider.types import StepTiming, Verdict

PRIOR_TESTED = 8.0
PRIOR_ACCEPTED = 6.0

FIRST_CHANCE = 0.1
"""Least chance before anything is measured."""

LOWEST_CHANCE = 0.01
"""Least chance where rows are free: below it there is nothing to gain."""

HYSTERESIS = 0.15
AHEAD_HYSTERESIS = 0.4
WAIT_HYSTERESIS = 0.3
DEEP = 4
"""By such a share the verifier's least chance, a draft's, and the longest wait have to change to be
worth a message. A draft's is a power of the verifier's. A depth that is waited for has to change by
more than a DEEP-th."""

LEAST_GAIN = 0.02
"""Waiting must promise this many tokens more than the verifier emits in the time that it takes."""

GAIN_KEPT = 0.0
BUSY_KEPT = 0.25
"""While a session waits it goes on to wait from this gain on, and with so many more sessions."""

WAITED_SHARE = 0.1
"""Of the longest wait; shorter ones come of other things."""

WAIT_SHARE = 0.5
"""No wait is planned that takes more than this share of a bare pass: drafts go on during passes, so
what a wait brings comes without it, only a pass later."""

LONGEST_WAIT_US = 1_000_000
"""A draft's own word on its speed never makes a pass wait longer."""

BUSY_SESSIONS = 1.5
"""With more sessions in a pass than this, on average, no session makes the others' pass wait."""

IDLE_ROUNDS = 16
"""So many passes in a row without a node worth verifying, and the drafts rest."""

REST_ROUNDS = 28
PROBE_ROUNDS = 4
"""Drafts that rested for so many rounds try again for so many, from when the first of what they
make can be there."""

MOST_PROBE_ROUNDS = 64

MOST_DEPTH = 256
MOST_NODES = 1024
NODES_A_DEPTH = 8
"""Nodes that a draft which runs ahead may have alive for each token of its depth. Fewer are spent
before the next verdict, and the draft stands idle."""

MOST_BYTES = 2**18
SHORT_PATH = 4
"""Tokens; a draft that has so many there first is the one to wait for."""

PASSES_AHEAD = 2.0
"""While a pass verifies one stretch of the tree, the next one is being drafted."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the request and the deployment allow. `wait_nodes` and `max_wait_us` None: planned."""

    num_speculative_tokens: int
    width: int
    proposal_top_k: int
    wait_nodes: int | None = None
    max_wait_us: int | None = None
    adaptive: bool = True
    run_ahead: bool = True


@dataclass(frozen=True, slots=True)
class Pace:
    """How far away a draft is and how long a step takes it, in microseconds; 0: not seen yet."""

    round_trip_us: float = 0.0
    step_us: float = 0.0

    def with_round_trip(self, round_trip_us: int) -> "Pace":
        """After a message that was so long on its way there and back; older ones fade."""
        known = self.round_trip_us
        now = round_trip_us if not known else 0.8 * known + 0.2 * round_trip_us
        return replace(self, round_trip_us=now)

    def with_step(self, step_us: int) -> "Pace":
        """After a chunk that took `step_us` a draft pass; older ones fade."""
        known = self.step_us
        return replace(self, step_us=step_us if not known else 0.8 * known + 0.2 * step_us)


@dataclass(frozen=True, slots=True)
class Observations:
    """What a session has seen so far. Times in microseconds; 0: not seen yet.

    `tested` and `accepted` have an entry for each place below the tip: how often a pass decided it,
    and how often for the drafted token. `tokens` were decided by passes that took, with the waits
    before them, `cycle_us`; both are of the whole verifier, as are `passes` and `sessions`, the
    sessions in a pass. `idle_rounds` passes in a row found nothing worth verifying; since they were
    too many, `resting` has the rounds of rest that are left, or, negative, those of a probe. Older
    observations fade. Step and round trip are those of the draft that is waited for.
    """

    tested: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    rounds: int = 0
    idle_rounds: int = 0
    resting: int = 0
    tokens: float = 0.0
    cycle_us: float = 0.0
    sessions: float = 1.0
    draft_step_us: float = 0.0
    round_trip_us: float = 0.0
    passes: PassTimes = field(default_factory=PassTimes)

    def acceptance(self, place: int) -> float:
        """Chance that a drafted token `place` places below the tip is accepted where those above it
        are; places that were hardly tested borrow from those above.
        """
        tested, accepted = PRIOR_TESTED, PRIOR_ACCEPTED
        for index in range(min(place + 1, len(self.tested))):
            # What is known of the place above counts as much as the prior did there.
            share = PRIOR_TESTED / tested
            tested = tested * share + self.tested[index]
            accepted = accepted * share + self.accepted[index]
        return min(accepted / tested, 0.999)

    def survival(self, depth: int) -> list[float]:
        """The chances that the first 1, 2, ... `depth` drafted tokens are all accepted."""
        chances: list[float] = []
        for place in range(depth):
            chances.append((chances[-1] if chances else 1.0) * self.acceptance(place))
        return chances

    @property
    def rate(self) -> float:
        """Tokens per microsecond of the verifier, for all its sessions."""
        return self.tokens / self.cycle_us if self.cycle_us else 0.0

    def with_verdict(self, verdict: Verdict, *, has_waited: bool = False) -> "Observations":
        """After a verdict; a path that ended for lack of nodes tested nothing beyond its end.

        A pass that `has_waited` for nodes, and then found none worth verifying, waited in vain.
        """
        timing = verdict.timing
        accepted = sum(1 for node_id in verdict.node_ids if node_id)
        is_in_vain = has_waited and not verdict.drafted
        tested = accepted + (1 if verdict.missed or is_in_vain else 0)
        is_helped = verdict.drafted > 0 or not self.draft_step_us
        # While it queued the verifier made tokens for others, in passes that are not counted here.
        waited_us = max(0, timing.wait_us - timing.queue_us)
        cycle_us = waited_us + timing.forward_us + timing.accept_us
        if not self.rounds:  # its wait was for the prompt
            cycle_us = timing.forward_us
        return replace(
            self,
            tested=_counted(self.tested, tested),
            accepted=_counted(self.accepted, accepted, max(tested, len(self.tested))),
            rounds=self.rounds + 1,
            idle_rounds=0 if is_helped else self.idle_rounds + 1,
            resting=0 if is_helped else self._resting_next(),
            tokens=self.tokens * MEMORY + (timing.batch_tokens or len(verdict.tokens)),
            cycle_us=self.cycle_us * MEMORY + cycle_us,
            sessions=0.9 * self.sessions + 0.1 * timing.batch_sessions,
            passes=self.passes.add(timing.batch_rows or timing.rows, timing.forward_us),
        )

    def _resting_next(self) -> int:
        """`resting` after one more idle round. How long a probe lasts is settled as it begins."""
        if self.resting == 0:
            return REST_ROUNDS if self.idle_rounds + 1 >= IDLE_ROUNDS else 0
        if self.resting < 0:
            return self.resting + 1 or REST_ROUNDS
        if self.resting > 1:
            return self.resting - 1
        pass_us = self.passes.predict(1)
        first_us = self.round_trip_us + self.draft_step_us
        under_way = math.ceil(first_us / pass_us) if pass_us else 0
        return -min(PROBE_ROUNDS + under_way, MOST_PROBE_ROUNDS)

    def with_drafts(self, paces: Sequence[Pace]) -> "Observations":
        """With the drafts that take part now; none: as it was. What is waited for comes from the
        one that has a short path at the verifier first.
        """
        known = [pace for pace in paces if pace.step_us]
        if not known:
            return self
        first = min(known, key=lambda pace: pace.round_trip_us + SHORT_PATH * pace.step_us)
        return replace(self, draft_step_us=first.step_us, round_trip_us=first.round_trip_us)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the drafts and the verifier are told."""

    draft: DraftPlan
    policy: ReadinessPolicy

    def has_waited(self, timing: StepTiming) -> bool:
        """Whether a pass with that timing waited under this plan; it may have begun before it."""
        waited_us = timing.wait_us - timing.queue_us - timing.gap_us
        return self.policy.min_depth > 0 and waited_us >= WAITED_SHARE * self.policy.max_wait_us

    def is_close(self, last: "Plan") -> bool:
        """Whether it changes nothing that is worth a message."""
        return (
            replace(self.policy, min_chance=0, max_wait_us=0, min_depth=0)
            == replace(last.policy, min_chance=0, max_wait_us=0, min_depth=0)
            and replace(self.draft, min_chance=0, min_depth=0, least_sent=0)
            == replace(last.draft, min_chance=0, min_depth=0, least_sent=0)
            and _is_near(self.policy.min_chance, last.policy.min_chance, HYSTERESIS)
            and _is_near(self.draft.min_chance, last.draft.min_chance, AHEAD_HYSTERESIS)
            and _is_near(self.policy.max_wait_us, last.policy.max_wait_us, WAIT_HYSTERESIS)
            and (self.policy.min_depth > 0) == (last.policy.min_depth > 0)
            and abs(self.policy.min_depth - last.policy.min_depth) * DEEP <= last.policy.min_depth
        )


def plan(seen: Observations, limits: Limits, has_drafts: bool, last: Plan | None = None) -> Plan:
    """The plan for the next round; `last` itself where nothing changes that is worth a message.

    A session without drafts for now may have some later: its passes have room for their rows.
    """
    is_drafting = has_drafts and not _rests(seen, limits)
    least = _least_chance(seen, limits)
    is_waiting = last is not None and last.policy.min_depth > 0
    min_depth, wait_us = _wait(seen, limits, is_waiting) if is_drafting else (0, 0)
    most = limits.num_speculative_tokens
    stretches = 4 if limits.run_ahead else 1
    depth = min(stretches * most, MOST_DEPTH) if is_drafting else 0
    made = Plan(
        DraftPlan(
            depth=depth,
            width=limits.width,
            proposal_top_k=limits.proposal_top_k,
            max_nodes=min(max(1, depth * _nodes_a_depth(limits)), MOST_NODES),
            max_bytes=MOST_BYTES,
            min_chance=_least_ahead(seen, limits, least, seen.round_trip_us),
            part=DraftPart.TREE,
            min_depth=min_depth,
            least_sent=least,
        ),
        ReadinessPolicy(min_depth, wait_us, most, least),
    )
    return last if last is not None and made.is_close(last) else made


def _rests(seen: Observations, limits: Limits) -> bool:
    """Whether drafting has not paid for so long that drafts stop, but for a probe now and then."""
    return limits.adaptive and seen.resting > 0


def _nodes_a_depth(limits: Limits) -> int:
    is_tree = limits.run_ahead and limits.width > 1
    return max(NODES_A_DEPTH, limits.width) if is_tree else limits.width


def _least_chance(seen: Observations, limits: Limits) -> float:
    """The chance from which on a row pays."""
    if not limits.adaptive:
        return 0.0
    if not seen.rate or seen.passes.row_us is None:
        return FIRST_CHANCE
    return min(max(seen.rate * seen.passes.row_us, LOWEST_CHANCE), 1.0)


def draft_at(
    made: Plan,
    seen: Observations,
    limits: Limits,
    round_trip_us: float,
    last: DraftPlan | None = None,
) -> DraftPlan:
    """The part of a plan that a draft is told that is so far away: the farther, the more ahead.
    `last` is what it was told before.
    """
    least = _least_ahead(seen, limits, made.policy.min_chance, round_trip_us)
    known = made.draft.min_chance if last is None else last.min_chance
    if _is_near(least, known, AHEAD_HYSTERESIS):
        least = known
    return replace(made.draft, min_chance=least)


def _least_ahead(seen: Observations, limits: Limits, least: float, round_trip_us: float) -> float:
    """The least chance of a node to draft below: one that would pay in the next pass but one, when
    all of this pass and of those under way between here and the draft were accepted.
    """
    if not limits.run_ahead:
        return least
    pass_us = seen.passes.predict(1 + limits.num_speculative_tokens)
    under_way = round_trip_us / pass_us if pass_us else 0.0
    return float(least ** (PASSES_AHEAD + min(under_way, 4.0)))


def _wait(seen: Observations, limits: Limits, is_waiting: bool) -> tuple[int, int]:
    """How deep a tree a pass waits for, and how long at most (microseconds); `is_waiting`: the last
    plan did. After a hit so deep a tree is there.
    """
    most = limits.num_speculative_tokens
    if 0 in (limits.wait_nodes, limits.max_wait_us, most):
        return 0, 0
    if limits.wait_nodes is not None and limits.max_wait_us is not None:
        return min(limits.wait_nodes, most), limits.max_wait_us
    if not seen.draft_step_us or not seen.passes.n:
        return 0, 0

    def wait_us(count: int) -> float:
        return seen.round_trip_us + count * seen.draft_step_us if count else 0.0

    if limits.wait_nodes is not None:
        best = min(limits.wait_nodes, most)
    else:
        if seen.sessions > BUSY_SESSIONS + (BUSY_KEPT if is_waiting else 0.0):
            return 0, 0
        rate = max(seen.rate, 1 / max(seen.passes.predict(1), 1.0))
        gained = [0.0, *accumulate(seen.survival(most))]

        def gain(count: int) -> float:
            return gained[count] - rate * (wait_us(count) + count * (seen.passes.row_us or 0.0))

        longest_us = WAIT_SHARE * seen.passes.predict(1)
        best = max((n for n in range(most + 1) if wait_us(n) <= longest_us), key=gain)
        if best == 0 or gain(best) < (GAIN_KEPT if is_waiting else LEAST_GAIN):
            return 0, 0
    longest = LONGEST_WAIT_US if limits.max_wait_us is None else limits.max_wait_us
    return best, min(int(1.5 * wait_us(best)) + 1000, longest)


def _is_near(new: float, last: float, share: float) -> bool:
    """Whether a number changed by at most `share`, and neither came up from 0 nor went there."""
    return abs(new - last) <= share * last if new else not last


def _counted(counts: tuple[float, ...], reached: int, places: int = 0) -> tuple[float, ...]:
    """`counts` with one more for each of the first `reached` places, older ones fading."""
    size = max(len(counts), reached, places)
    padded = (*counts, *(0.0 for _ in range(size - len(counts))))
    return tuple(count * MEMORY + (1 if i < reached else 0) for i, count in enumerate(padded))
