"""Which drafted nodes one pass verifies: the best connected subtree under a budget.

Knows the chances that drafts estimated, no model. Nothing here may look at a SAMPLED token before
it is taken (exactness, trap 2).
"""

import heapq
from typing import NamedTuple

from outrider.nodes import Draw, Subtree, TreeNode


def select(
    root: TreeNode, budget: int, *, deepest: int | None = None, min_chance: float = 0.0
) -> Subtree:
    """The most promising connected subtree of at most `budget` nodes: none at a position beyond
    `deepest`, none whose chances multiply to less than `min_chance`.

    LISTED nodes compete with the chance that their draft gives them, which may know everything. A
    SAMPLED node competes with a chance that knows its context but neither its token nor its q, and
    waits its turn even where another draft listed the same token: chosen after a look at the token,
    it would no longer be a fair draw (exactness, trap 2). Draws of one node are taken in the order
    that they are tested in: none outweighs an earlier one.
    """
    selection = Selection()
    selection.add(root, deepest=deepest, min_chance=min_chance)
    return selection.take(budget)[0]


class Way(NamedTuple):
    """How a child can be taken: as LISTED (`draw` None) or by a draw of its token.

    `weight` is its chance, `below` what its own children are weighed with. (A tuple, for a busy
    verifier makes thousands between two passes.)
    """

    child: TreeNode
    draw: Draw | None
    weight: float
    below: float


def ways(node: TreeNode, survival: float) -> list[Way]:
    """The ways to the children of a node that is reached with chance `survival`.

    A SAMPLED child weighs what its draw does, whatever its token; no draw outweighs an earlier one
    of the node. Where a later draw may be of a child's token too, and have left descendants there,
    they wait for it: with what is below a child nothing must show of a draw that was not taken.
    """
    if not node.draws:
        return [
            Way(child, None, weight := survival * child.chance, weight)
            for child in node.children.values()
            if child.chance >= 0
        ]
    weights: list[float] = []
    latest: dict[int, float] = {}
    for draw in node.draws:
        weights.append(min(survival * draw.chance, *weights[-1:], survival))
        # Of the draws that may be of a token the last one weighs least.
        latest |= dict.fromkeys(draw.row.ids, weights[-1])

    def way(child: TreeNode, draw: Draw | None, weight: float) -> Way:
        return Way(child, draw, weight, min(weight, latest.get(child.token, weight)))

    listed = [child for child in node.children.values() if child.chance >= 0]
    return [
        *(way(child, None, survival * child.chance) for child in listed),
        *(
            way(node.children[draw.token], draw, weight)
            for draw, weight in zip(node.draws, weights, strict=True)
        ),
    ]


class _Offer(NamedTuple):
    """A way to a node that could be taken next, of a parent that was taken as `row`. Offers are
    ordered: the heaviest first, of equal ones the first that was made.
    """

    minus_weight: float
    order: int
    part: "_Part"
    row: int
    way: Way


class Selection:
    """A greedy best-first walk over the trees of all sessions of a pass: the heap holds what could
    be taken next.

    How many nodes are taken is a number from before the walk, and a tree's `min_chance` one from
    before its tokens were drawn, so neither anticipates. Nothing of a drawn token may show before
    its draw is taken. A token that could also be that of another draw may carry the descendants of
    that draw, so what is below it waits for the draw.

    >>> a, b = TreeNode(-1, 0), TreeNode(-1, 0)
    >>> a.children[5] = TreeNode(5, 1, a, chance=0.5)
    >>> b.children[6] = TreeNode(6, 1, b, chance=0.9)
    >>> both = Selection()
    >>> both.add(a), both.add(b)
    (0, 1)
    >>> [len(subtree) for subtree in both.take(1)]
    [0, 1]
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._heap: list[_Offer] = []
        self._order = 0

    def add(
        self,
        root: TreeNode,
        *,
        most: int | None = None,
        deepest: int | None = None,
        min_chance: float = 0.0,
    ) -> int:
        """Lets a tree take part, with at most `most` nodes; returns its number."""
        part = _Part(most, deepest, min_chance)
        self._parts.append(part)
        self._push(part, 0, root, 1.0)
        return len(self._parts) - 1

    def take(self, budget: int) -> list[Subtree]:
        """The subtrees of all trees, together at most `budget` nodes."""
        left = budget
        while self._heap and left > 0:
            _, _, part, row, way = heapq.heappop(self._heap)
            taken = part.take(row, way)
            if taken is not None:
                left -= 1
                self._push(part, taken, way.child, way.below)
        return [part.subtree() for part in self._parts]

    def _push(self, part: "_Part", row: int, node: TreeNode, survival: float) -> None:
        if part.deepest is not None and node.position >= part.deepest:
            return
        for way in ways(node, survival):
            if way.weight >= part.min_chance:
                self._order += 1
                heapq.heappush(self._heap, _Offer(-way.weight, self._order, part, row, way))


class _Part:
    """One tree of a selection and what is taken of it; row 0 is its root."""

    def __init__(self, most: int | None, deepest: int | None, min_chance: float) -> None:
        self.most = most
        self.deepest = deepest
        self.min_chance = min_chance
        self._nodes: list[TreeNode] = []
        self._parents: list[int] = []
        self._children: list[dict[int, int]] = [{}]
        self._draws: list[list[Draw]] = [[]]

    def take(self, row: int, way: Way) -> int | None:
        """Takes a way down from `row`; returns the row of the node if that is one node more.

        A full tree takes no draw either: a later one must not be tested without an earlier one.
        """
        if self.most is not None and len(self._nodes) >= self.most:
            return None
        child, draw = way.child, way.draw
        if draw is not None:
            self._draws[row].append(draw)
        siblings = self._children[row]
        if child.token in siblings:
            return None
        self._nodes.append(child)
        taken = siblings[child.token] = len(self._nodes)
        self._parents.append(row)
        self._children.append({})
        self._draws.append([])
        return taken

    def subtree(self) -> Subtree:
        """What is taken, parents first."""
        return Subtree(
            tuple(self._nodes),
            tuple(self._parents),
            tuple(self._children),
            tuple(map(tuple, self._draws)),
        )
