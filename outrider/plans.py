"""What a session asks of its drafts and of its verifier, and how far it may go.

Frozen data that knows nothing of who makes it (`orchestrator/planner.py`) or acts on it.
"""

from dataclasses import dataclass
from enum import Enum

from outrider.errors import require

MAX_DRAFT_INDEX = 255
"""Most drafts of a session, over its whole life: node ids carry the index in 8 bits."""

MAX_DRAFTED_NODES = 256 * 32
"""Most nodes of one draft that are alive in a session: as many as the deepest and widest chain has.
"""


class DraftPart(str, Enum):
    """Which nodes a draft goes on below: the path of first children, the most promising ones of the
    whole tree, or those of its share of the branches that leave that path.
    """

    CHAIN = "chain"
    TREE = "tree"
    BRANCHES = "branches"


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """How far and how wide a draft runs ahead of the committed tip, and below which nodes.

    `depth` 0 stops it. `max_nodes` of its own may be alive, `max_bytes` of chunks be sent between
    two commits. Below a node whose chances multiply to less than `min_chance` nothing is drafted;
    of what is drafted below one node a child of less chance than `least_sent` is not sent.
    Of the branches it has the share number `share` of `shares`. The verifier waits for a tree that
    is `min_depth` deep: the path of first children comes before all else up to there, whatever its
    chance.
    """

    depth: int = 8
    width: int = 1
    proposal_top_k: int = 64
    max_nodes: int = MAX_DRAFTED_NODES
    max_bytes: int = 2**20
    min_chance: float = 0.0
    part: DraftPart = DraftPart.CHAIN
    share: int = 0
    shares: int = 1
    min_depth: int = 0
    least_sent: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.depth <= 256, f"depth is {self.depth}; give 0 to 256")
        require(1 <= self.width <= 32, f"width is {self.width}; give 1 to 32")
        require(
            1 <= self.proposal_top_k <= 1024,
            f"proposal_top_k is {self.proposal_top_k}; give 1 to 1024",
        )
        require(
            1 <= self.max_nodes <= MAX_DRAFTED_NODES,
            f"max_nodes is {self.max_nodes}; give 1 to {MAX_DRAFTED_NODES}",
        )
        require(
            1 <= self.max_bytes <= 2**26,
            f"max_bytes is {self.max_bytes}; give 1 to {2**26} (64 MiB)",
        )
        _require_chance("min_chance", self.min_chance)
        _require_chance("least_sent", self.least_sent)
        require(
            0 <= self.share < self.shares <= MAX_DRAFT_INDEX,
            f"the share is number {self.share} of {self.shares}; give a number from 0 on that is "
            f"below that of shares, which is at most {MAX_DRAFT_INDEX}",
        )
        require(0 <= self.min_depth <= 256, f"min_depth is {self.min_depth}; give 0 to 256")


@dataclass(frozen=True, slots=True)
class ReadinessPolicy:
    """A session is verified once its tree is `min_depth` deep or `max_wait_us` have passed since
    its last verdict; no node is whose chances multiply to less than `min_chance`.
    """

    min_depth: int = 0
    max_wait_us: int = 0
    max_rows: int = 16
    min_chance: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.min_depth <= 256, f"min_depth is {self.min_depth}; give 0 to 256")
        require(
            0 <= self.max_wait_us <= 60_000_000,
            f"max_wait_us is {self.max_wait_us}; give 0 to 60000000 (a minute)",
        )
        require(0 <= self.max_rows <= 4096, f"max_rows is {self.max_rows}; give 0 to 4096")
        _require_chance("min_chance", self.min_chance)


def _require_chance(name: str, chance: float) -> None:
    require(0 <= chance <= 1, f"{name} is {chance}; give 0 to 1")
