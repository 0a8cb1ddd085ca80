"""A draft that takes part in a session, and how many nodes it may still send."""

from orchestrator.peers import DraftPeer
from orchestrator.requests import DraftStats
from outrider.errors import InvalidArgumentError
from outrider.types import DraftPlan
from outrider.wire.draft_client import DraftStream


class Attached:
    """A draft sends no more nodes than its plan has room for, at first and after each commit:
    nothing here is unbounded.
    """

    def __init__(
        self, peer: DraftPeer, index: int, link: DraftStream, stats: DraftStats, plan: DraftPlan
    ) -> None:
        self.peer = peer
        self.index = index
        self.link = link
        self.stats = stats
        self._allowance = 0
        self.allow(plan)

    def allow(self, plan: DraftPlan) -> None:
        """Lets it send what it can propose between two commits."""
        self._allowance += plan.depth * plan.width

    def spend(self, nodes: int) -> None:
        """Counts nodes that it sent; raises InvalidArgumentError for more than it may."""
        self._allowance -= nodes
        if self._allowance < 0:
            raise InvalidArgumentError("it sent more nodes than its plan has room for")
