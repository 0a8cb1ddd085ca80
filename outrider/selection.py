"""Which drafted nodes one pass verifies: the best connected subtree under a budget.

Knows assumed chances of acceptance, no model. Nothing here may look at a SAMPLED token before it is
taken (exactness, trap 2).
"""

import heapq
from dataclasses import dataclass

from outrider.nodes import Draw, Subtree, TreeNode

SAMPLED_SURVIVAL = 0.8
"""Assumed chance that a SAMPLED token is accepted. It must not depend on the token (exactness)."""

RANK_SURVIVAL = (0.8, 0.12, 0.04, 0.02)
"""Assumed chance of the first, second, ... LISTED child under shared noise, where q says little."""


def select(root: TreeNode, budget: int, *, deepest: int | None, by_rank: bool) -> Subtree:
    """The most promising connected subtree of at most `budget` nodes, none of them at a position
    beyond `deepest`.

    LISTED nodes compete with their q (or, under shared noise, their rank: `by_rank`). A SAMPLED
    node competes with a weight that knows its context but neither its token nor its q, and waits
    its turn even where another draft listed the same token: chosen after a look at the token, it
    would no longer be a fair draw (exactness, trap 2).
    """
    return _Selection(root, by_rank, deepest).take(budget)


@dataclass(frozen=True, slots=True)
class _Offer:
    """A node that could be taken next; `survival` is what its own children are weighed with."""

    parent: TreeNode
    child: TreeNode
    draw: Draw | None
    survival: float


class _Selection:
    """A greedy best-first walk: the heap holds what could be taken next.

    Nothing of a drawn token may show before its draw is taken. A LISTED token that could also have
    been drawn here may carry the descendants of that draw, so what is below it waits for the draws.
    """

    def __init__(self, root: TreeNode, by_rank: bool, deepest: int | None) -> None:
        self._by_rank = by_rank
        self._deepest = deepest
        self._rows: dict[int, int] = {id(root): 0}
        self._nodes: list[TreeNode] = []
        self._parents: list[int] = []
        self._children: list[dict[int, int]] = [{}]
        self._draws: list[list[Draw]] = [[]]
        self._heap: list[tuple[float, int, _Offer]] = []
        self._order = 0
        self._push(root, 1.0)

    def take(self, budget: int) -> Subtree:
        while self._heap and len(self._nodes) < budget:
            offer = heapq.heappop(self._heap)[-1]
            child, row = offer.child, self._rows[id(offer.parent)]
            if offer.draw is not None:
                self._draws[row].append(offer.draw)
            if id(child) in self._rows:
                continue
            self._rows[id(child)] = len(self._nodes) + 1
            self._children[row][child.token] = len(self._nodes) + 1
            self._nodes.append(child)
            self._parents.append(row)
            self._children.append({})
            self._draws.append([])
            self._push(child, offer.survival)
        return Subtree(
            tuple(self._nodes),
            tuple(self._parents),
            tuple(self._children),
            tuple(map(tuple, self._draws)),
        )

    def _push(self, node: TreeNode, survival: float) -> None:
        if self._deepest is not None and node.position >= self._deepest:
            return
        listed = [child for child in node.children.values() if child.rank >= 0]
        outside = max(1.0 - sum(child.listed_q for child in listed), 0.05)
        sampled = survival * SAMPLED_SURVIVAL * outside
        for child in listed:
            chance = child.listed_q
            if self._by_rank:
                chance = RANK_SURVIVAL[min(child.rank, len(RANK_SURVIVAL) - 1)]
            weight = survival * chance
            may_be_drawn = any(child.token in draw.row.ids for draw in node.draws)
            below = min(weight, sampled) if may_be_drawn else weight
            self._offer(weight, _Offer(node, child, None, below))
        for draw in node.draws:
            self._offer(sampled, _Offer(node, node.children[draw.token], draw, sampled))

    def _offer(self, weight: float, offer: _Offer) -> None:
        self._order += 1
        heapq.heappush(self._heap, (-weight, self._order, offer))
