"""One request on a clock of its own: a verifier, a draft and the wire between them, step by step.

Pure: it runs no model and waits for nothing. What to draft, to verify and to wait for is decided by
the code that real sessions use: the planner, the draft's frontier and what it learns of its
guesses, the selection of a pass. Only the texts are made up, or recorded: for each position what
the draft guesses, and which of its guesses is the target's token. It knows one session at a time: a
verifier that is shared by several is slower.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draft_service.chances import Chances
from orchestrator.planner import Limits, Observations, Pace, draft_at, plan
from orchestrator.simulated_draft import FIRST_ID, RIGHT, SimulatedDraft
from orchestrator.texts import Drawn, Profile, Text
from outrider.nodes import Subtree, TreeNode
from outrider.plans import DraftPlan, ReadinessPolicy
from outrider.tree import TokenTree
from outrider.types import Chunk, StepTiming, Verdict


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Microseconds of a pass by its rows: measured points, straight lines between them.

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

    `acceptance[i]` is the chance that the target's token is among the drafted ones where it was at
    the i places before, counted from the last miss; the last entry holds for all that follow.
    `profile` tells how sure the draft is of which; None: it has one guess at each place.
    `draft_step_us` is from one draft step to the next, where it goes on below one node, and
    `draft_row_us` more for each further one. `draft_wire_us` and `verify_wire_us` are round trips
    as messages of a session see them, the services' own handling of them included.
    `pass_overhead_us` is what a pass takes besides the model; the part of it that comes after the
    verdict, `turnaround_us`, overlaps with waiting.
    `seen_round_trip_us` and `seen_step_us` are what the planner believes the draft's round trip and
    step to be; 0: what they are. `alone_us` is from token to token of the target alone; 0: a pass
    of one row and what comes with it.
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
    draft_row_us: float = 0.0
    profile: Profile | None = None

    @property
    def token_alone_us(self) -> float:
        """Microseconds of a token of the target alone: a pass for each."""
        return self.alone_us or self.costs.of(1) + self.pass_overhead_us

    def step_us(self, rows: int) -> float:
        """Microseconds of a draft pass with `rows` rows."""
        return self.draft_step_us + self.draft_row_us * (rows - 1)


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a simulated request, from its first verdict to its last."""

    tokens: int
    passes: int
    us: float
    verified: int
    accepted: int


_Event = tuple[float, int, Callable[[], None]]
"""When, in which order of those at the same time, and what."""


def run(
    situation: Situation,
    tokens: int,
    seed: int,
    text: Text | None = None,
    chances: Chances | None = None,
) -> Run:
    """Simulates a request of `tokens` tokens; the same seed gives the same luck.

    `text` None: one is drawn by what the situation says of the pair. `chances` are what the draft
    has learned before; None: nothing.
    """
    chosen = Drawn(situation.acceptance, seed, situation.profile) if text is None else text
    return _Request(situation, tokens, chosen, chances or Chances()).run()


class _Request:
    """Verifier, orchestrator and draft of one request, and the messages that are under way."""

    def __init__(self, situation: Situation, tokens: int, text: Text, chances: Chances) -> None:
        self._s = situation
        self._tokens = tokens
        self._now = 0.0
        self._events: list[_Event] = []
        self._count = 0
        # orchestrator
        self._seen = Observations()
        self._pace = Pace(max(1.0, situation.seen_round_trip_us or situation.draft_wire_us))
        self._told: DraftPlan | None = None
        first = self._plan = plan(self._seen, situation.limits, has_drafts=True)
        # verifier
        self._tree = TokenTree()
        self._policy = first.policy
        self._is_running = False
        self._free_at = 0.0
        self._verdict_at = 0.0
        self._wakes_at = math.inf
        # draft
        self._draft = SimulatedDraft(first.draft, chances, text)
        self._commits: list[tuple[int, DraftPlan]] = []
        self._is_stepping = False
        # outcome
        self._passes = self._verified = self._accepted = 0
        self._first_us = self._last_us = 0.0
        self._first_tokens = 0

    def run(self) -> Run:
        self._verify()
        self._after(self._s.draft_wire_us / 2, self._step)
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

    @property
    def _tip(self) -> int:
        return len(self._tree.committed)

    # The verifier: as verify_service.scheduler and .sessions.

    def _verify(self) -> None:
        """Starts a pass where the policy says so, else looks again when it may say so."""
        if self._is_running or self._tip >= self._tokens:
            return
        room = self._tokens - self._tip - 1
        ready_at = self._free_at
        if self._tree.depth < min(self._policy.min_depth, room):
            ready_at = max(ready_at, self._verdict_at + self._policy.max_wait_us)
        if ready_at > self._now:
            if ready_at < self._wakes_at:
                self._wakes_at = ready_at
                self._at(ready_at, self._wake)
            return
        subtree = self._tree.select(
            self._policy.max_rows, max_depth=room, min_chance=self._policy.min_chance
        )
        self._is_running = True
        forward_us = self._s.costs.of(1 + len(subtree))
        done = self._done(subtree, forward_us, self._now - self._verdict_at)
        overhead_us = max(0.0, self._s.pass_overhead_us - self._s.turnaround_us)
        self._after(forward_us + overhead_us, done)

    def _wake(self) -> None:
        self._wakes_at = math.inf
        self._verify()

    def _done(self, subtree: Subtree, forward_us: float, wait_us: float) -> Callable[[], None]:
        def done() -> None:
            accepted = row = 0
            while (child := subtree.children[row].get(RIGHT)) is not None:
                accepted, row = accepted + 1, child
            base = self._tip
            self._tree.commit((RIGHT,) * (accepted + 1))
            self._is_running = False
            self._free_at = self._now + self._s.turnaround_us
            self._verdict_at = self._now
            self._counted(accepted, len(subtree))
            verdict = Verdict(
                round_index=self._passes,
                base=base,
                tokens=(RIGHT,) * (accepted + 1),
                node_ids=(FIRST_ID,) * accepted + (0,),
                drafted=len(subtree),
                missed=subtree.has_children(row),
                timing=StepTiming(
                    wait_us=round(wait_us),
                    forward_us=round(forward_us),
                    accept_us=round(self._s.pass_overhead_us),
                    rows=1 + len(subtree),
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

    def _grow(self, chunk: Chunk) -> None:
        self._tree.grow(chunk)
        self._verify()

    def _set_policy(self, policy: ReadinessPolicy) -> None:
        self._policy = policy
        self._verify()

    # The orchestrator: as orchestrator.session.

    def _reconcile(self, verdict: Verdict) -> None:
        has_waited = self._plan.has_waited(verdict.timing)
        seen = self._seen.with_drafts([self._pace])
        self._seen = seen.with_verdict(verdict, has_waited=has_waited)
        new = self._plan = plan(self._seen, self._s.limits, True, self._plan)
        count = len(verdict.tokens)
        away_us = self._pace.round_trip_us
        told = self._told = draft_at(new, self._seen, self._s.limits, away_us, self._told)
        self._after(self._s.draft_wire_us / 2, lambda: self._commit(count, told))
        self._after(self._s.verify_wire_us / 2, lambda: self._set_policy(new.policy))

    def _relay(self, chunk: Chunk) -> None:
        step_us = self._s.seen_step_us or chunk.step_us
        self._pace = self._pace.with_step(max(1, round(step_us)))
        self._after(self._s.verify_wire_us / 2, lambda: self._grow(chunk))

    # The draft: as draft_service.scheduler and .sessions.

    def _commit(self, count: int, new_plan: DraftPlan) -> None:
        self._commits.append((count, new_plan))
        self._step()

    def _step(self) -> None:
        """Applies what has come, and starts a step where there is something to go on below."""
        if self._is_stepping:
            return
        for count, new_plan in self._commits:
            self._draft.commit(count, new_plan)
        self._commits.clear()
        targets = self._draft.targets()
        if targets:
            self._is_stepping = True
            rows = self._draft.feed(targets)
            us = self._s.step_us(rows)
            self._after(us, lambda: self._stepped(targets, rows, us))

    def _stepped(self, targets: Sequence[TreeNode], rows: int, us: float) -> None:
        self._is_stepping = False
        chunk = self._draft.grow(targets, rows, us)
        self._after(self._s.draft_wire_us / 2, lambda: self._relay(chunk))
        self._step()

    def _after(self, delay_us: float, act: Callable[[], None]) -> None:
        self._at(self._now + delay_us, act)

    def _at(self, at_us: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_us, self._count, act))
