"""TokenTree as obviously as it can be written: a dict of node ids to whole paths of tokens."""

from collections.abc import Iterable, Sequence
from random import Random

from outrider.tree import Growth, TokenTree, TreeNode
from outrider.types import DRAFT_INDEX_SHIFT, Chunk, Node, NodeKind, ProposalRow

Path = tuple[int, ...]

VOCAB = 3
LAST_COUNTER = 2**DRAFT_INDEX_SHIFT - 1


class SlowTree:
    """Knows every live or committed id by the tokens from the start of the answer down to it."""

    def __init__(self, emitted: Sequence[int], capacity: int) -> None:
        self.committed: Path = tuple(emitted)
        self.capacity = capacity
        self.paths: dict[int, Path] = {}
        self.drawn: dict[tuple[int, int], set[int]] = {}

    @property
    def live(self) -> dict[int, Path]:
        """Ids below the tip."""
        return {i: path for i, path in self.paths.items() if len(path) > len(self.committed)}

    def grow(self, nodes: Iterable[Node]) -> Growth:
        """Adds the nodes one by one."""
        counts = dict.fromkeys(("added", "already_committed", "duplicate", "dropped", "refused"), 0)
        for node in nodes:
            counts[self._add(node)] += 1
        return Growth(**counts)

    def commit(self, tokens: Iterable[int], *, fresh: bool = False) -> list[Path]:
        """Ids that had drafted each token; everything beside the committed tokens goes, and what is
        below them, too, where that is spent (`fresh`)."""
        matched: list[Path] = []
        for token in tokens:
            self.committed = (*self.committed, token)
            matched.append(tuple(i for i, p in self.live_or_tip() if p == self.committed))
            self._forget(
                i
                for i, p in self.paths.items()
                if p[: len(self.committed)] != self.committed[: len(p)]
            )
        if fresh:
            self._forget(self.live)
        return matched

    def live_or_tip(self) -> list[tuple[int, Path]]:
        """Ids that are at least as deep as the tip."""
        return [(i, p) for i, p in self.paths.items() if len(p) >= len(self.committed)]

    def _add(self, node: Node) -> str:
        if node.id in self.paths:
            return "duplicate"
        if node.parent_id < 2**DRAFT_INDEX_SHIFT:
            if node.parent_id > len(self.committed):
                return "dropped"
            parent = self.committed[: node.parent_id]
        elif node.parent_id in self.paths:
            parent = self.paths[node.parent_id]
        else:
            return "dropped"
        path = (*parent, node.token)
        if len(path) <= len(self.committed):
            if path != self.committed[: len(path)]:
                return "dropped"
            self.paths[node.id] = path
            return "already_committed"
        if node.kind is NodeKind.SAMPLED:
            drawn = self.drawn.setdefault((node.id >> DRAFT_INDEX_SHIFT, node.parent_id), set())
            if node.token in drawn:
                return "duplicate"
            drawn.add(node.token)
        if len(self.live) >= self.capacity:
            return "refused"
        self.paths[node.id] = path
        return "added"

    def _forget(self, ids: Iterable[int]) -> None:
        for node_id in list(ids):
            del self.paths[node_id]
            for key in [key for key in self.drawn if key[1] == node_id]:
                del self.drawn[key]


def path_of(tree: TokenTree, node: TreeNode) -> Path:
    """The tokens from the start of the answer down to a live node."""
    below: list[int] = []
    while node is not tree.root:
        below.append(node.token)
        assert node.parent is not None
        node = node.parent
    return (*tree.committed, *reversed(below))


def live_paths(tree: TokenTree, ids: Iterable[int]) -> dict[int, Path]:
    """The paths of those of `ids` that are alive."""
    nodes = {node_id: tree.node(node_id) for node_id in ids}
    return {i: path_of(tree, node) for i, node in nodes.items() if node is not None}


def contents(node: TreeNode) -> object:
    """Everything that a node and those below it know."""
    children = {token: contents(child) for token, child in node.children.items()}
    return (
        (node.token, node.position, tuple(node.ids), node.chance, tuple(node.draws)),
        {key: (known.row, tuple(known.drawn.items())) for key, known in node.rows.items()},
        children,
    )


class ChunkMaker:
    """Makes chunks as drafts do, and as drafts that are late, restarted or confused do."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next = {1: 0, 2: 0, 255: LAST_COUNTER - 10_000}
        self._drawn: dict[tuple[int, int], set[int]] = {}
        self.sent: list[Node] = []

    def chunk(self, num_committed: int) -> Chunk:
        """One to four nodes of one draft, with the rows of the SAMPLED ones."""
        draft = self._random.choice(tuple(self._next))
        nodes = [self._node(draft, num_committed) for _ in range(self._random.randint(1, 4))]
        self.sent += nodes
        uniform = (1 / VOCAB,) * VOCAB
        parents = {node.parent_id for node in nodes if node.kind is NodeKind.SAMPLED}
        rows = (ProposalRow(parent, tuple(range(VOCAB)), uniform) for parent in sorted(parents))
        return Chunk(tuple(nodes), tuple(rows))

    def _node(self, draft: int, num_committed: int) -> Node:
        random = self._random
        own = [node for node in self.sent if node.id >> DRAFT_INDEX_SHIFT == draft]
        if own and random.random() < 0.1:
            return random.choice(own)
        node_id = draft << DRAFT_INDEX_SHIFT | self._next[draft]
        self._next[draft] += 1
        parent_id = random.choice((num_committed, num_committed, max(num_committed - 1, 0)))
        if own and random.random() < 0.75:
            parent_id = random.choice(own[-6:]).id
        if random.random() < 0.05:
            parent_id = random.choice((num_committed + 1, LAST_COUNTER, node_id, node_id + 1))
        drawn = self._drawn.setdefault((draft, parent_id), set())
        left = [token for token in range(VOCAB) if token not in drawn]
        if left and random.random() < 0.4:
            token = random.choice(left)
            drawn.add(token)
            return Node(node_id, parent_id, token, random.random(), NodeKind.SAMPLED)
        token = random.randrange(VOCAB)
        return Node(node_id, parent_id, token, random.random(), NodeKind.LISTED)
