"""One request on a clock of its own: a verifier, a draft and the wire between them, step by step.

Pure: it runs no model and waits for nothing. What to draft, to verify and to wait for is decided by
the planner that real sessions use, from the same observations; chance is the seeded acceptance of
drafted tokens only. It knows one session at a time: a verifier that is shared by several is slower.
"""

import heapq
import math
import random
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.planner import Limits, Observations, plan
from outrider.types import DraftPlan, ReadinessPolicy, StepTiming, Verdict

MOST_PLACES = 256

_NODE = 1
"""Stands for the id of an accepted node: the planner counts those that are not 0."""


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Microseconds of a target pass by its rows: measured points, straight lines between them.

    `rows` ascend. Beyond the last point its line goes on; below the first the time is the first's.
    """

    rows: tuple[int, ...]
    us: tuple[float, ...]

    @classmethod
    def line(cls, first_us: float, row_us: float) -> "PassCosts":
        """A pass of one row takes `first_us`, each further row `row_us`."""
        return cls((1, 2), (first_us, first_us + row_us))

    def of(self, rows: int) -> float:
        """Microseconds of a pass with `rows` rows.

        >>> PassCosts((1, 5), (40.0, 48.0)).of(3), PassCosts.line(40.0, 2.0).of(11)
        (44.0, 60.0)
        """
        if rows <= self.rows[0] or len(self.rows) == 1:
            return self.us[0]
        right = min(bisect_right(self.rows, rows), len(self.rows) - 1)
        left = right - 1
        slope = (self.us[right] - self.us[left]) / (self.rows[right] - self.rows[left])
        return max(self.us[left] + slope * (rows - self.rows[left]), 0.0)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a request meets; times in microseconds.

    `acceptance[i]` is the chance that a drafted token is the target's where the i before it were,
    counted from the last miss; the last entry holds for all that follow. `draft_step_us` is from
    one drafted token to the next. `draft_wire_us` and `verify_wire_us` are round trips as messages
    of a session see them, the services' own handling of them included. `pass_overhead_us` is what a
    pass takes besides the model; the part of it that comes after the verdict, `turnaround_us`,
    overlaps with waiting. `seen_round_trip_us` and `seen_step_us` are what the planner believes the
    draft's round trip and step to be; 0: what they are. `alone_us` is from token to token of the
    target alone; 0: a pass of one row and what comes with it.
    """

    costs: PassCosts
    acceptance: tuple[float, ...]
    draft_step_us: float
    draft_wire_us: float
    limits: Limits
    verify_wire_us: float = 0.0
    pass_overhead_us: float = 0.0
    turnaround_us: float = 0.0
    seen_round_trip_us: float = 0.0
    seen_step_us: float = 0.0
    alone_us: float = 0.0

    @property
    def token_alone_us(self) -> float:
        """Microseconds of a token of the target alone: a pass for each."""
        return self.alone_us or self.costs.of(1) + self.pass_overhead_us


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a simulated request, from its first verdict to its last."""

    tokens: int
    passes: int
    us: float
    verified: int
    accepted: int


@dataclass(slots=True, eq=False)
class _Chain:
    """Drafted tokens without a break, at the positions behind `start`; from `wrong` on they are not
    the target's."""

    start: int
    wrong: int


_Event = tuple[float, int, Callable[[], None]]
"""When, in which order of those at the same time, and what."""


def run(situation: Situation, tokens: int, seed: int) -> Run:
    """Simulates a request of `tokens` tokens; the same seed gives the same luck."""
    return _Request(situation, tokens, seed).run()


class _Request:
    """Verifier, orchestrator and draft of one request, and the messages that are under way."""

    def __init__(self, situation: Situation, tokens: int, seed: int) -> None:
        self._s = situation
        self._tokens = tokens
        self._luck = random.Random(seed)
        self._now = 0.0
        self._events: list[_Event] = []
        self._count = 0
        # orchestrator
        self._seen = Observations().with_round_trip(
            max(1, round(situation.seen_round_trip_us or situation.draft_wire_us))
        )
        first = plan(self._seen, situation.limits, has_drafts=True)
        self._draft_plan = first.draft
        # verifier
        self._tip = 0
        self._tree: list[tuple[_Chain, int]] = []
        self._policy = first.policy
        self._is_running = False
        self._free_at = 0.0
        self._verdict_at = 0.0
        self._wakes_at = math.inf
        self._streak = 0
        # draft
        self._known = 0
        self._chain = _Chain(0, self._first_wrong(0))
        self._leaf = 0
        self._plan = first.draft
        self._commits: list[tuple[int, DraftPlan]] = []
        self._is_stepping = False
        # outcome
        self._passes = self._verified = self._accepted = 0
        self._first_us = self._last_us = 0.0
        self._first_tokens = 0

    def run(self) -> Run:
        self._verify()
        self._after(self._s.draft_wire_us / 2, self._draft)
        while self._tip < self._tokens:
            self._now, _, act = heapq.heappop(self._events)
            act()
        return Run(
            self._tip - self._first_tokens,
            self._passes - 1,
            self._last_us - self._first_us,
            self._verified,
            self._accepted,
        )

    # The verifier: as verify_service.scheduler and .sessions.

    def _verify(self) -> None:
        """Starts a pass where the policy says so, else looks again when it may say so."""
        if self._is_running or self._tip >= self._tokens:
            return
        wanted = min(self._policy.min_depth, self._tokens - self._tip - 1)
        ready_at = self._free_at
        if len(self._tree) < wanted:
            ready_at = max(ready_at, self._verdict_at + self._policy.max_wait_us)
        if ready_at > self._now:
            if ready_at < self._wakes_at:
                self._wakes_at = ready_at
                self._at(ready_at, self._wake)
            return
        room = self._tokens - self._tip - 1
        worth = self._places(self._policy.min_chance)
        nodes = self._tree[: min(self._policy.max_rows, room, worth)]
        self._is_running = True
        rows = 1 + len(nodes)
        forward_us = self._s.costs.of(rows)
        done = self._done(nodes, rows, forward_us, self._now - self._verdict_at)
        overhead_us = max(0.0, self._s.pass_overhead_us - self._s.turnaround_us)
        self._after(forward_us + overhead_us, done)

    def _wake(self) -> None:
        self._wakes_at = math.inf
        self._verify()

    def _done(
        self, nodes: Sequence[tuple[_Chain, int]], rows: int, forward_us: float, wait_us: float
    ) -> Callable[[], None]:
        def done() -> None:
            accepted = sum(1 for chain, position in nodes if position < chain.wrong)
            base, self._tip = self._tip, self._tip + accepted + 1
            self._streak = 0 if accepted < len(nodes) else self._streak + accepted
            self._tree = [
                (chain, position)
                for chain, position in self._tree
                if position > self._tip and chain.wrong > self._tip
            ]
            self._is_running = False
            self._free_at = self._now + self._s.turnaround_us
            self._verdict_at = self._now
            self._counted(accepted, len(nodes))
            verdict = Verdict(
                round_index=self._passes,
                base=base,
                tokens=(0,) * (accepted + 1),
                node_ids=(_NODE,) * accepted + (0,),
                drafted=len(nodes),
                timing=StepTiming(
                    wait_us=round(wait_us),
                    forward_us=round(forward_us),
                    accept_us=round(self._s.pass_overhead_us),
                    rows=rows,
                ),
            )
            self._after(self._s.verify_wire_us / 2, lambda: self._reconcile(verdict))
            self._verify()

        return done

    def _counted(self, accepted: int, verified: int) -> None:
        self._passes += 1
        self._last_us = self._now
        if self._passes == 1:
            self._first_us, self._first_tokens = self._now, self._tip
            return
        self._verified += verified
        self._accepted += accepted

    def _grow(self, chain: _Chain, position: int) -> None:
        if position > self._tip and chain.wrong > self._tip:
            self._tree.append((chain, position))
            self._verify()

    def _set_policy(self, policy: ReadinessPolicy) -> None:
        self._policy = policy
        self._verify()

    # The orchestrator: as orchestrator.session.

    def _reconcile(self, verdict: Verdict) -> None:
        has_waited = self._policy.min_depth > 0
        self._seen = self._seen.with_verdict(verdict, has_waited=has_waited)
        new = plan(self._seen, self._s.limits, has_drafts=True)
        known = verdict.base + len(verdict.tokens)
        self._after(self._s.draft_wire_us / 2, lambda: self._commit(known, new.draft))
        self._after(self._s.verify_wire_us / 2, lambda: self._set_policy(new.policy))

    def _relay(self, chain: _Chain, position: int) -> None:
        if not self._seen.draft_step_us:  # every step takes the same: the first tells all
            self._seen = self._seen.with_step(
                max(1, round(self._s.seen_step_us or self._s.draft_step_us))
            )
        self._after(self._s.verify_wire_us / 2, lambda: self._grow(chain, position))

    # The draft: as draft_service.scheduler and .sessions.

    def _commit(self, known: int, new_plan: DraftPlan) -> None:
        self._commits.append((known, new_plan))
        self._draft()

    def _draft(self) -> None:
        """Applies what has come, and starts a step where there is room to run ahead."""
        if self._is_stepping:
            return
        for known, new_plan in self._commits:
            self._known, self._plan = known, new_plan
            if self._leaf < known or self._chain.wrong <= known:
                self._leaf = known
                self._chain = _Chain(known, self._first_wrong(known))
        self._commits.clear()
        ahead = min(self._plan.depth, 1 + self._places(self._plan.min_chance))
        if self._leaf - self._known < ahead:
            self._is_stepping = True
            self._after(self._s.draft_step_us, self._stepped)

    def _stepped(self) -> None:
        self._is_stepping = False
        self._leaf += 1
        chain, position = self._chain, self._leaf
        self._after(self._s.draft_wire_us / 2, lambda: self._relay(chain, position))
        self._draft()

    def _places(self, min_chance: float) -> int:
        """How many drafted tokens in a row have that chance or more to be accepted, all of them."""
        chances, reached, places = self._s.acceptance, 1.0, 0
        while places < MOST_PLACES:
            reached *= chances[min(places, len(chances) - 1)]
            if reached < min_chance:
                break
            places += 1
        return places

    def _first_wrong(self, start: int) -> int:
        """Position of the first token of a new chain that is not the target's."""
        chances, position, run_length = self._s.acceptance, start + 1, self._streak
        while position <= self._tokens:
            if self._luck.random() >= chances[min(run_length, len(chances) - 1)]:
                return position
            position += 1
            run_length += 1
        return position

    def _after(self, delay_us: float, act: Callable[[], None]) -> None:
        self._at(self._now + delay_us, act)

    def _at(self, at_us: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_us, self._count, act))
