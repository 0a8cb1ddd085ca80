"""A draft that takes part in a session, and how many nodes it may still send."""

import time
from dataclasses import replace

from orchestrator.peers import DraftPeer
from orchestrator.planner import Pace
from orchestrator.requests import DraftStats
from outrider.errors import InvalidArgumentError
from outrider.plans import DraftPlan
from outrider.types import Chunk, DraftCommit
from outrider.wire.draft_client import DraftStream, Opened, RelayedChunk

MAX_OPEN_COMMITS = 64
"""A draft is not expected to be so many behind: the oldest no longer time it, nor let it send."""

SILENT_COMMITS = 8

MOST_PLACES = 16
"""Chunks that go on below more nodes are timed with those of so many."""


class Attached:
    """A draft sends no more nodes than its plan has room for, at first and after each commit:
    nothing here is unbounded.
    """

    def __init__(
        self,
        peer: DraftPeer,
        index: int,
        link: DraftStream,
        stats: DraftStats,
        plan: DraftPlan,
        *,
        returns: bool = False,
    ) -> None:
        """`plan` is the one that it was opened with. One that `returns` took part before."""
        self.peer = peer
        self.index = index
        self.link = link
        self.stats = stats
        self.plan = plan
        self._returns = returns
        self.pace = Pace(peer.round_trip_us)
        self._unanswered = 0
        self._allowance = 0
        self._commits: dict[int, float] = {}
        self._last = (-1, 0.0)
        self.allow(plan)

    @property
    def is_silent(self) -> bool:
        """Whether it has said nothing to so many commits that others should not wait for it."""
        return self._unanswered > SILENT_COMMITS

    def note_opened(self, opened: Opened) -> None:
        """How much of the prompt it had cached; one that returns reuses its own work, too."""
        if not self._returns:
            self.stats.cached_tokens = opened.cached_tokens

    def allow(self, plan: DraftPlan) -> None:
        """Lets it send what it can propose between two commits; what it did not send long ago it
        cannot send now.
        """
        more = plan.max_nodes if plan.depth else 0
        most = max(self._allowance, MAX_OPEN_COMMITS * plan.max_nodes)
        self._allowance = min(self._allowance + more, most)

    def commit(self, commit: DraftCommit, plan: DraftPlan) -> None:
        """Tells it what was emitted, and its plan where that has changed."""
        if plan != self.plan:
            commit = replace(commit, plan=plan)
            self.plan = plan
        self.allow(plan)
        if len(self._commits) >= MAX_OPEN_COMMITS:
            self._commits.pop(next(iter(self._commits)))
        self._commits[commit.base + len(commit.tokens)] = time.monotonic()
        self._unanswered += 1 if plan.depth else 0
        self.link.commit(commit)

    def count(self, relayed: RelayedChunk) -> None:
        """Counts what it sent and the time behind it; raises InvalidArgumentError for more nodes
        than it may send.
        """
        chunk = relayed.chunk
        self._spend(len(chunk.nodes))
        self.stats.drafted_tokens += len(chunk.nodes)
        self.stats.steps += 1
        self.stats.step_us += chunk.step_us
        self.peer.note(chunk)
        self.pace = self.pace.with_step(chunk.step_us)
        self._unanswered = 0
        self._pace(chunk, relayed.heard_at)
        committed_at = self._commits.pop(chunk.known_tokens, None)
        if committed_at is None:
            return
        away_us = int((relayed.heard_at - committed_at) * 1e6)
        self.stats.wire_rounds += 1
        wire_us = max(0, away_us - chunk.held_us)
        self.stats.wire_us += wire_us
        self.pace = self.pace.with_round_trip(wire_us)

    def _pace(self, chunk: Chunk, heard_at: float) -> None:
        """Times chunks between which it was told nothing, so that it had no reason to pause."""
        known_tokens, last_at = self._last
        self._last = (chunk.known_tokens, heard_at)
        if chunk.known_tokens == known_tokens and chunk.nodes:
            steps, places = _steps(chunk)
            stats = self.stats
            missing = [0] * (places - len(stats.paced_steps))
            stats.paced_steps += missing
            stats.paced_us += missing
            stats.paced_steps[places - 1] += steps
            stats.paced_us[places - 1] += int((heard_at - last_at) * 1e6)

    def _spend(self, nodes: int) -> None:
        self._allowance -= nodes
        if self._allowance < 0:
            raise InvalidArgumentError("it sent more nodes than its plan has room for")


def _steps(chunk: Chunk) -> tuple[int, int]:
    """How many steps are behind a chunk, and below how many nodes each went on, about.

    A step knows nothing of what it makes itself, so where nodes hang off others of the same chunk
    several steps have travelled together.
    """
    levels: dict[int, int] = {}
    for node in chunk.nodes:
        levels[node.id] = levels.get(node.parent_id, 0) + 1
    steps = max(levels.values())
    places = len({node.parent_id for node in chunk.nodes})
    return steps, min(max(1, round(places / steps)), MOST_PLACES)
