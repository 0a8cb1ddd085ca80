"""Where a draft goes on: the leaves of its tree, the most promising first.

Pure: a token tree and a plan in, nodes out. The chance of a node is the product of the chances down
to it from the committed tip; a draft step is worth most where that is highest, because each further
row costs the same (best-first growth; with positions as levels it is the geometric fan-out of
Saguaro, arXiv 2603.03251, theorem 12, by measured instead of assumed chances).
"""

import heapq
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass

from outrider.nodes import TreeNode
from outrider.plans import DraftPart, DraftPlan
from outrider.selection import ways


@dataclass(frozen=True, slots=True)
class Spot:
    """A node to go on below, and the chance that the target gets there. It `is_awaited` where the
    verifier's next pass waits for what comes below it."""

    chance: float
    node: TreeNode
    is_awaited: bool = False

    @property
    def worth(self) -> float:
        """What children of it are worth: where the verifier waits for them, as much as a tip's."""
        return 1.0 if self.is_awaited else self.chance


@dataclass(frozen=True, slots=True)
class _Place:
    """A node on the way: whether it lies on the path of first children, and if not, whether the
    branch that left it is this draft's."""

    chance: float
    is_first: bool = True
    is_mine: bool = False


class Frontier:
    """The open nodes of a tree: those that nobody has gone on below.

    Whoever uses it says what `is_open`, calls `restart` for a new tree, `follow` when a part of
    it is left, `extend` when a node has got its children, `append` when others have made nodes.
    """

    def __init__(self, is_open: Callable[[TreeNode], bool]) -> None:
        self._is_open = is_open
        self._plan = DraftPlan()
        self._deepest = 0
        self._places: dict[TreeNode, _Place] = {}
        self._heap: list[tuple[bool, float, int, TreeNode]] = []
        self._order = 0
        self._awaited_until = 0
        self._first_end = TreeNode(-1, 0)

    def restart(self, root: TreeNode, plan: DraftPlan) -> None:
        """Looks at the whole tree below `root` again."""
        self._begin(root, plan)
        self._places = {root: _Place(1.0)}
        self._first_end = root
        self._push(root)
        stack = [root]
        while stack:
            node = stack.pop()
            self.extend(node)
            stack.extend(node.children.values())

    def follow(self, root: TreeNode, plan: DraftPlan, live: Container[TreeNode]) -> None:
        """`root`, somewhere in the tree or new, is the tip now and only nodes of `live` are left.

        Below a tip on the path of first children chances grow by one factor: no ranking, and no
        part of a draft, depends on it. Else it looks at all again.
        """
        before, place = self._plan, self._places.get(root)
        is_same_part = (plan.part, plan.share, plan.shares) == (
            before.part,
            before.share,
            before.shares,
        )
        if place is None or not is_same_part or not place.is_first or not place.chance > 0:
            self.restart(root, plan)
            return
        self._begin(root, plan)
        places = self._places
        self._places = {}
        for node, old in places.items():
            if node in live:
                chance = old.chance / place.chance
                self._places[node] = _Place(chance, old.is_first, old.is_mine)
                self._push(node)
        if self._first_end not in live:
            self._first_end = root

    def extend(self, node: TreeNode) -> None:
        """`node`, which it knows, has got children; those it knows stay what they are."""
        place = self._places[node]
        for rank, (chance, child) in enumerate(_ranked(node, place.chance)):
            if child in self._places:
                continue
            is_first = place.is_first and rank == 0
            is_mine = place.is_mine
            if place.is_first and not is_first:
                is_mine = (child.position + rank) % self._plan.shares == self._plan.share
            self._places[child] = _Place(chance, is_first, is_mine)
            if is_first:
                self._first_end = child
            self._push(child)

    def append(self, made: Sequence[TreeNode]) -> bool:
        """`made`, parents first, have come; False, with nothing changed, where some of them are not
        below leaves, so that others may rank otherwise now: then it has to look at all again.
        """
        parents = dict.fromkeys(node.parent for node in made)
        new = set(made)
        is_known = all(parent in new or parent in self._places for parent in parents)
        children = [child for parent in parents if parent for child in parent.children.values()]
        if not is_known or not all(child in new for child in children):
            return False
        if any(node in self._places for node in made):
            return False
        for parent in parents:
            if parent is not None:
                self.extend(parent)
        return True

    def _begin(self, root: TreeNode, plan: DraftPlan) -> None:
        self._plan = plan
        self._deepest = root.position + plan.depth
        awaited = 0 if plan.part is DraftPart.BRANCHES else min(plan.min_depth, plan.depth)
        self._awaited_until = root.position + awaited
        self._heap.clear()

    @property
    def missing(self) -> int:
        """How much longer the path of first children has to become, if it can, before the verifier
        stops to wait for it."""
        end = self._first_end
        return max(0, self._awaited_until - end.position) if self._is_open(end) else 0

    def best(self, most: int) -> list[Spot]:
        """Up to `most` open nodes, the most promising first, and before all others the one that the
        verifier waits for."""
        spots: list[Spot] = []
        passed = []
        while self._heap and len(spots) < most:
            entry = heapq.heappop(self._heap)
            if self._is_open(entry[-1]):
                passed.append(entry)
                spots.append(Spot(-entry[1], entry[-1], not entry[0]))
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return spots

    def _push(self, node: TreeNode) -> None:
        place = self._places[node]
        is_awaited = place.is_first and node.position < self._awaited_until
        if node.position >= self._deepest:
            return
        if place.chance < self._plan.min_chance and not is_awaited:
            return
        part = self._plan.part
        if part is DraftPart.CHAIN and not place.is_first:
            return
        if part is DraftPart.BRANCHES and not place.is_mine:
            return
        if self._is_open(node):
            self._order += 1
            heapq.heappush(self._heap, (not is_awaited, -place.chance, self._order, node))


def _ranked(node: TreeNode, survival: float) -> list[tuple[float, TreeNode]]:
    """The children by the chances that count below them. As in what a pass verifies, none shows
    whether the token of a draw is one that was LISTED too (exactness, trap 2).
    """
    chances: dict[TreeNode, float] = {}
    for way in ways(node, survival):
        chances[way.child] = max(way.below, chances.get(way.child, 0.0))
    return sorted(((c, child) for child, c in chances.items()), key=lambda pair: -pair[0])
