"""A draft's side of a simulated session, as draft_service.sessions and .scheduler have it: the same
frontier, rules of growth and learned chances over a made-up or recorded text. Its model runs
nothing, and what that has seen is only counted. Pure; it has no clock.
"""

from collections.abc import Sequence

from draft_service.chances import Cell, Chances, cell_of
from draft_service.frontier import Frontier
from draft_service.growth import MOST_SPOTS, least_sent, room
from orchestrator.texts import Guess, Text
from outrider.nodes import TreeNode
from outrider.pass_times import PassTimes, most_per_time
from outrider.plans import DraftPlan
from outrider.sampling.proposing import Candidate
from outrider.tree import TokenTree
from outrider.types import Chunk, Node, NodeKind

FIRST_ID = 1 << 24
"""Of the only draft: index 1."""

RIGHT = 0
"""The token that stands for the target's at every position; wrong guesses have others."""


class SimulatedDraft:
    """Grows a tree best first. A step is `targets`, then `feed`, then `grow`; commits come between
    steps.
    """

    def __init__(self, plan: DraftPlan, chances: Chances, text: Text) -> None:
        self._plan = plan
        self._chances = chances
        self._text = text
        self._tree = TokenTree()
        self._times = PassTimes()
        self._expanded: set[TreeNode] = set()
        self._fed: set[TreeNode] = set()
        self._cells: dict[int, Cell] = {}
        self._unsent: dict[TreeNode, list[tuple[int, Cell]]] = {}
        self._unfed_tokens = 1
        self._made = 0
        self._sent_bytes = 0
        self._frontier = Frontier(self._is_open)
        self._frontier.restart(self._tree.root, plan)

    def commit(self, count: int, plan: DraftPlan) -> None:
        """The target's next `count` tokens are known: learns from them, goes on below them."""
        self._plan = plan
        self._sent_bytes = 0
        for _ in range(count):
            root = self._tree.root
            for token, cell in self._unsent.pop(root, ()):
                self._chances.learn(cell, token == RIGHT)
            for child in root.children.values():
                for node_id in child.ids:
                    self._chances.learn(self._cells[node_id], child.token == RIGHT)
            matched = root.children.get(RIGHT)
            self._unfed_tokens = 0 if matched in self._fed else self._unfed_tokens + 1
            self._tree.commit((RIGHT,))
        root = self._tree.root
        if self._is_open(root):
            self._unfed_tokens = max(1, self._unfed_tokens)
        live = {root, *root.descendants()}
        self._expanded &= live
        self._fed &= live
        self._unsent = {n: unsent for n, unsent in self._unsent.items() if n in live}
        self._cells = {i: c for i, c in self._cells.items() if self._tree.node(i) is not None}
        self._frontier.follow(root, plan, live)

    def targets(self) -> list[TreeNode]:
        """The nodes that the next step goes on below; empty: it has nothing to do."""
        most = room(self._plan, len(self._cells), self._sent_bytes, self._frontier.missing)
        # As draft_service.scheduler has it for one session alone.
        spots = self._frontier.best(min(MOST_SPOTS, most))
        best = most_per_time([spot.worth for spot in spots], self._times)
        return [spot.node for spot in spots[:best]]

    def feed(self, targets: Sequence[TreeNode]) -> int:
        """The rows of a step below `targets`: they, and what the model has not seen above them."""
        new: set[TreeNode] = set()
        for node in targets:
            at: TreeNode | None = node
            while at is not None and at is not self._tree.root and at not in self._fed:
                new.add(at)
                at = at.parent
        self._fed |= new
        rows = len(new) + self._unfed_tokens
        self._unfed_tokens = 0
        return max(1, rows)

    def grow(self, targets: Sequence[TreeNode], rows: int, us: float) -> Chunk:
        """What a step of `rows` rows that took `us` microseconds made."""
        self._times = self._times.add(rows, round(us))
        nodes = [node for parent in targets for node in self._children(parent)]
        chunk = Chunk(tuple(nodes), step_us=round(us))
        self._sent_bytes += chunk.most_bytes
        self._expanded.update(targets)
        self._tree.grow(chunk)
        for parent in targets:
            self._frontier.extend(parent)
        return chunk

    def _children(self, parent: TreeNode) -> list[Node]:
        parent_id = parent.position if parent is self._tree.root else parent.ids[0]
        guess = self._guess(parent)
        nodes: list[Node] = []
        found: list[tuple[int, Cell, float]] = []
        pairs = list(zip(guess.chances, guess.evidence, strict=True))[: self._plan.width]
        for rank, (first_guess, evidence) in enumerate(pairs):
            token = RIGHT if rank == guess.rank else rank + 1
            candidate = Candidate(token, first_guess, NodeKind.LISTED, first_guess, evidence)
            cell = cell_of(candidate, rank, self._text.sampling)
            found.append((token, cell, self._chances.of(candidate, cell)))
        least = least_sent([chance for _, _, chance in found], self._plan)
        for token, cell, chance in found:
            if chance < least:
                self._unsent.setdefault(parent, []).append((token, cell))
                continue
            node_id = FIRST_ID | self._made
            self._made += 1
            self._cells[node_id] = cell
            nodes.append(Node(node_id, parent_id, token, chance, NodeKind.LISTED, chance))
        return nodes

    def _guess(self, parent: TreeNode) -> Guess:
        at: TreeNode | None = parent
        while at is not None and at is not self._tree.root:
            if at.token != RIGHT:
                return self._text.elsewhere(self._made)
            at = at.parent
        return self._text.guess(parent.position)

    def _is_open(self, node: TreeNode) -> bool:
        return not node.children and node not in self._expanded
