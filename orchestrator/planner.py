"""How far a session's drafts run ahead, how much of it a pass verifies, and how long a pass waits.

Pure: observations in, a plan out. Everything here looks at past verdicts and times only, never at a
token that is still undecided, so no plan can anticipate (exactness, trap 2).

One rule carries most of it. A drafted token that is accepted with chance s is worth s tokens; the
row that verifies it makes the pass longer by `row_us`. While the verifier emits R tokens per
microsecond, for all its sessions, the row pays if s >= R * row_us. So that is the least chance
(`ReadinessPolicy.min_chance`), the same for every session of a verifier, and shared load is shared
by survival. Where no token reaches it nothing is verified: the target is as fast as alone.
"""

from dataclasses import dataclass, field, replace
from itertools import accumulate

from outrider.pass_times import MEMORY, PassTimes
from outrider.plans import DraftPart, DraftPlan, ReadinessPolicy
from outrider.types import Verdict

PRIOR_TESTED = 8.0
PRIOR_ACCEPTED = 6.0

FIRST_CHANCE = 0.1
"""Least chance before anything is measured."""

LOWEST_CHANCE = 0.01
"""Least chance where rows are free: below it there is nothing to gain."""

HYSTERESIS = 0.15
"""A least chance that differs by less than this share is not worth a message."""

LEAST_GAIN = 0.02
"""Waiting must promise this many tokens more than the verifier emits in the time that it takes."""

WAIT_SHARE = 0.5
"""No wait is planned that takes more than this share of a bare pass: drafts go on during passes, so
what a wait brings comes without it, only a pass later."""

LONGEST_WAIT_US = 1_000_000
"""A draft's own word on its speed never makes a pass wait longer."""

BUSY_SESSIONS = 1.5
"""With more sessions in a pass than this, on average, no session makes the others' pass wait."""

IDLE_ROUNDS = 16
"""So many passes in a row without a node worth verifying, and the drafts rest."""

PROBE_CYCLE = 32
PROBE_ROUNDS = 4
"""Drafts that rest try again in the first rounds of each cycle."""

MOST_DEPTH = 256
MOST_BYTES = 2**18
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
class Observations:
    """What a session has seen so far. Times in microseconds; 0: not seen yet.

    `tested` and `accepted` have an entry for each place below the tip: how often a pass decided it,
    and how often for the drafted token. `tokens` were decided by passes that took, with the waits
    before them, `cycle_us`; both are of the whole verifier, as are `passes` and `sessions`, the
    sessions in a pass. `idle_rounds` passes in a row found nothing worth verifying. Older
    observations fade.
    """

    tested: tuple[float, ...] = ()
    accepted: tuple[float, ...] = ()
    rounds: int = 0
    idle_rounds: int = 0
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
        cycle_us = timing.wait_us + timing.forward_us + timing.accept_us
        if not self.rounds:  # its wait was for the prompt
            cycle_us = timing.forward_us
        return replace(
            self,
            tested=_counted(self.tested, tested),
            accepted=_counted(self.accepted, accepted, max(tested, len(self.tested))),
            rounds=self.rounds + 1,
            idle_rounds=0 if is_helped else self.idle_rounds + 1,
            tokens=self.tokens * MEMORY + (timing.batch_tokens or len(verdict.tokens)),
            cycle_us=self.cycle_us * MEMORY + cycle_us,
            sessions=0.9 * self.sessions + 0.1 * timing.batch_sessions,
            passes=self.passes.add(timing.batch_rows or timing.rows, timing.forward_us),
        )

    def with_round_trip(self, round_trip_us: int) -> "Observations":
        """After a draft joined that is `round_trip_us` away; the nearest one counts."""
        known = self.round_trip_us
        return replace(self, round_trip_us=min(known, round_trip_us) if known else round_trip_us)

    def with_step(self, step_us: int) -> "Observations":
        """After a chunk that took `step_us` a draft pass."""
        known = self.draft_step_us
        return replace(self, draft_step_us=step_us if not known else 0.8 * known + 0.2 * step_us)


@dataclass(frozen=True, slots=True)
class Plan:
    """What the drafts and the verifier are told."""

    draft: DraftPlan
    policy: ReadinessPolicy


def plan(seen: Observations, limits: Limits, has_drafts: bool, last: Plan | None = None) -> Plan:
    """The plan for the next round, after `last`."""
    is_drafting = has_drafts and not _rests(seen, limits)
    least = _least_chance(seen, limits)
    if last is not None and abs(least - last.policy.min_chance) <= HYSTERESIS * least:
        least = last.policy.min_chance
    min_depth, wait_us = _wait(seen, limits) if is_drafting else (0, 0)
    most = limits.num_speculative_tokens
    stretches = 4 if limits.run_ahead else 1
    depth = min(stretches * most, MOST_DEPTH) if is_drafting else 0
    return Plan(
        DraftPlan(
            depth=depth,
            width=limits.width,
            proposal_top_k=limits.proposal_top_k,
            max_nodes=max(1, depth * limits.width),
            max_bytes=MOST_BYTES,
            min_chance=_least_ahead(seen, limits, least),
            part=DraftPart.TREE,
            min_depth=min_depth,
        ),
        ReadinessPolicy(min_depth, wait_us, most if is_drafting else 0, least),
    )


def _rests(seen: Observations, limits: Limits) -> bool:
    """Whether drafting has not paid for so long that drafts stop, but for a probe now and then."""
    if not limits.adaptive or seen.idle_rounds < IDLE_ROUNDS:
        return False
    return (seen.idle_rounds - IDLE_ROUNDS) % PROBE_CYCLE < PROBE_CYCLE - PROBE_ROUNDS


def _least_chance(seen: Observations, limits: Limits) -> float:
    """The chance from which on a row pays."""
    if not limits.adaptive:
        return 0.0
    if not seen.rate or seen.passes.row_us is None:
        return FIRST_CHANCE
    return min(max(seen.rate * seen.passes.row_us, LOWEST_CHANCE), 1.0)


def _least_ahead(seen: Observations, limits: Limits, least: float) -> float:
    """The least chance of a node to draft below: one that would pay in the next pass but one, when
    all of this pass and of those under way between here and the draft were accepted.
    """
    if not limits.run_ahead:
        return least
    pass_us = seen.passes.predict(1 + limits.num_speculative_tokens)
    under_way = seen.round_trip_us / pass_us if pass_us else 0.0
    return float(least ** (PASSES_AHEAD + min(under_way, 4.0)))


def _wait(seen: Observations, limits: Limits) -> tuple[int, int]:
    """How deep a tree to wait for after a miss, and how long at most (microseconds)."""
    most = limits.num_speculative_tokens
    if limits.wait_nodes == 0:
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
        if seen.sessions > BUSY_SESSIONS:
            return 0, 0
        rate = max(seen.rate, 1 / max(seen.passes.predict(1), 1.0))
        gained = [0.0, *accumulate(seen.survival(most))]

        def gain(count: int) -> float:
            return gained[count] - rate * (wait_us(count) + count * (seen.passes.row_us or 0.0))

        longest_us = WAIT_SHARE * seen.passes.predict(1)
        best = max((n for n in range(most + 1) if wait_us(n) <= longest_us), key=gain)
        if gain(best) < LEAST_GAIN:
            return 0, 0
    longest = LONGEST_WAIT_US if limits.max_wait_us is None else limits.max_wait_us
    return best, min(int(1.5 * wait_us(best)) + 1000, longest)


def _counted(counts: tuple[float, ...], reached: int, places: int = 0) -> tuple[float, ...]:
    """`counts` with one more for each of the first `reached` places, older ones fading."""
    size = max(len(counts), reached, places)
    padded = (*counts, *(0.0 for _ in range(size - len(counts))))
    return tuple(count * MEMORY + (1 if i < reached else 0) for i, count in enumerate(padded))
