"""The drafted tokens that a session's token tree is made of, and the part that a pass verifies.

Plain data: what is alive, what was committed and what is worth a pass is decided elsewhere
(`outrider.tree`, `outrider.selection`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from outrider.types import ProposalRow

UNKNOWN_CHANCE = 0.8
"""Of a SAMPLED node whose draft estimated none. It must not depend on the token (exactness)."""

RowKey = tuple[int, int]
"""Draft index and parent id: several drafts anchor their rows at one and the same committed tip."""


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A proposal row and the node ids of the tokens drawn from it so far, in the order drawn, those
    included that the tree had no room for: what follows was drawn without them."""

    row: ProposalRow
    drawn: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draw:
    """A SAMPLED child: its token, the row it was drawn from, the tokens drawn from it before, and
    its chance, which knows nothing of the token.
    """

    token: int
    row: ProposalRow
    gone: tuple[int, ...] = ()
    chance: float = UNKNOWN_CHANCE


@dataclass(slots=True, eq=False)
class TreeNode:
    """A token below the tip. Nodes of several drafts with the same content are one TreeNode.

    `position` counts emitted tokens up to and including this one; `ids` are the drafts' ids for it;
    `chance` is the highest that a draft LISTED it with, negative where none did; `draws` are its
    SAMPLED children in the order that they arrived.
    """

    token: int
    position: int
    parent: "TreeNode | None" = None
    ids: list[int] = field(default_factory=list)
    chance: float = -1.0
    children: dict[int, "TreeNode"] = field(default_factory=dict)
    draws: list[Draw] = field(default_factory=list)
    rows: dict[RowKey, DrawnRow] = field(default_factory=dict)

    def descendants(self) -> Iterator["TreeNode"]:
        """All nodes below this one, parents first."""
        stack = list(self.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


@dataclass(frozen=True, slots=True)
class Subtree:
    """Nodes chosen for one pass. Row 0 is the tip, row i the i-th node; parents come first.

    `children[row]` maps a token to the row of that child; `draws[row]` are the SAMPLED children to
    be tested at that row, in the order drawn.
    """

    nodes: tuple[TreeNode, ...]
    parents: tuple[int, ...]
    children: tuple[dict[int, int], ...]
    draws: tuple[tuple[Draw, ...], ...]

    def __len__(self) -> int:
        return len(self.nodes)

    def has_children(self, row: int) -> bool:
        """Whether drafted tokens are tested for the place behind that row."""
        return bool(self.children[row])
