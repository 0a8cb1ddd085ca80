"""The token tree of a session: one pure state machine for draft, engine and verifier.

It knows tokens, node ids and what was committed; it knows no model, no clock and no gRPC. The one
rule about staleness, races, several drafts and restarts lives here: a node whose parent is
committed at position t and whose token equals the committed token t + 1 *is* committed, whoever
drafted it and however late it arrives; a node that hangs off anything else that is not alive is
dropped.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from outrider.errors import InvalidArgumentError
from outrider.nodes import UNKNOWN_CHANCE, Draw, DrawnRow, RowKey, Subtree, TreeNode
from outrider.selection import select
from outrider.types import DRAFT_INDEX_SHIFT, Chunk, Node, NodeKind, ProposalRow

__all__ = ["Draw", "Growth", "Subtree", "TokenTree", "TreeNode"]

EMPTY_ROW = ProposalRow(0, (), ())

MAX_DRAWS = 32  # at one node, of all drafts together: testing them is quadratic in their number
REMEMBERED_TOKENS = 512  # whose ids are kept for late children; nobody is further behind


@dataclass(frozen=True, slots=True)
class Growth:
    """What became of the nodes of a chunk; the counts add up to its number of nodes."""

    added: int = 0
    already_committed: int = 0
    duplicate: int = 0
    dropped: int = 0
    refused: int = 0


class TokenTree:
    """Grows with drafts' chunks, is cut back by commits.

    >>> tree = TokenTree()
    >>> chain = (Node(1 << 24, 0, 5, 0.9, NodeKind.LISTED), Node(1 << 24 | 1, 1 << 24, 6, 0.8,
    ...     NodeKind.LISTED))
    >>> tree.grow(Chunk(chain)).added
    2
    >>> tree.commit([5, 7])
    [(16777216,), ()]
    """

    def __init__(self, emitted: Sequence[int] = (), *, capacity: int = 4096) -> None:
        """`emitted` are tokens committed before the tree was made; `capacity` bounds live ids."""
        self.committed: list[int] = list(emitted)
        self.capacity = capacity
        self.root = TreeNode(token=-1, position=len(self.committed))
        self._nodes: dict[int, TreeNode] = {}
        self._committed_ids: dict[int, int] = {}

    @property
    def pending(self) -> int:
        """Live node ids below the tip: a count of contents would depend on what was sampled."""
        return len(self._nodes)

    @property
    def depth(self) -> int:
        """Tokens of the longest path below the tip."""
        deepest = max((node.position for node in self._nodes.values()), default=self.root.position)
        return deepest - self.root.position

    @property
    def pending_at_tip(self) -> int:
        """Live node ids right below the tip. Their number depends on nothing that hangs below a
        sampled token, so waiting for it anticipates nothing (exactness, trap 2)."""
        return sum(len(child.ids) for child in self.root.children.values())

    def is_pending(self, tokens: Collection[int]) -> bool:
        """Whether a live node has one of `tokens`."""
        return any(node.token in tokens for node in self._nodes.values())

    def node(self, node_id: int) -> TreeNode | None:
        """The live node that a draft calls `node_id`."""
        return self._nodes.get(node_id)

    def grow(self, chunk: Chunk) -> Growth:
        """Adds what is alive of `chunk`.

        Raises InvalidArgumentError, with the tree unchanged, where a SAMPLED node has no row, a row
        that gives its token no probability, or one that its token was drawn from before.
        """
        rows = {row.parent_id: row for row in chunk.rows} if chunk.rows else {}
        if len(self._committed_ids) > 4 * self.capacity:
            oldest = len(self.committed) - REMEMBERED_TOKENS
            self._committed_ids = {i: p for i, p in self._committed_ids.items() if p >= oldest}
        sampled = [node for node in chunk.nodes if node.kind is NodeKind.SAMPLED]
        chunk_ids = {node.id for node in chunk.nodes} if sampled else set()
        drawn: dict[tuple[RowKey, int], int] = {}
        for node in sampled:
            self._check(node, rows, chunk_ids)
            self._check_drawn_once(node, drawn)
        counts = dict.fromkeys(("added", "already_committed", "duplicate", "dropped", "refused"), 0)
        for node in chunk.nodes:
            counts[self._add(node, rows)] += 1
        return Growth(**counts)

    def commit(self, tokens: Sequence[int], *, fresh: bool = False) -> list[tuple[int, ...]]:
        """Appends emitted tokens; what follows them stays, all else is dropped.

        `fresh` says that the last token was chosen after a look at what follows it: that is spent
        and goes, too. What a row was drawn from before is remembered, for draws still to come.
        Returns, for each token, the ids of the node that had drafted it (none: the target's own).
        """
        matched = [self._commit_one(token) for token in tokens]
        if fresh:
            for node in self.root.children.values():
                self._forget(node)
            self.root.children.clear()
            self.root.draws.clear()
        return matched

    def select(
        self, budget: int, *, max_depth: int | None = None, min_chance: float = 0.0
    ) -> Subtree:
        """The most promising connected subtree of at most `budget` nodes, `max_depth` deep; see
        `outrider.selection.select`."""
        deepest = None if max_depth is None else self.root.position + max_depth
        return select(self.root, budget, deepest=deepest, min_chance=min_chance)

    def _check(self, node: Node, rows: dict[int, ProposalRow], chunk_ids: set[int]) -> None:
        parent = self._resolve(node.parent_id)
        if not isinstance(parent, TreeNode) and node.parent_id not in chunk_ids:
            # It will never be tested. Refusing it would make an error depend on who commits first.
            return
        row = self._row(node, parent, rows)
        if row is None:
            raise InvalidArgumentError(
                f"node {node.id} is SAMPLED but its parent {node.parent_id} has no proposal row; "
                "send the row that it was drawn from"
            )
        probability = dict(zip(row.ids, row.probs, strict=True)).get(node.token, 0.0)
        if not probability > 0:
            raise InvalidArgumentError(
                f"node {node.id} is SAMPLED with token {node.token}, to which its row gives "
                f"probability {probability}; it cannot have been drawn from that row"
            )

    def _check_drawn_once(self, node: Node, drawn: dict[tuple[RowKey, int], int]) -> None:
        """`drawn` are the draws of this chunk so far; rows are drawn from without replacement."""
        key = _row_key(node)
        parent = self._resolve(node.parent_id)
        before = drawn.setdefault((key, node.token), node.id)
        if isinstance(parent, TreeNode) and key in parent.rows:
            before = parent.rows[key].drawn.get(node.token, before)
        if before != node.id:
            raise InvalidArgumentError(
                f"nodes {before} and {node.id} are both SAMPLED with token {node.token} from one "
                "row; draw without replacement"
            )

    @staticmethod
    def _row(
        node: Node, parent: "TreeNode | int | None", rows: dict[int, ProposalRow]
    ) -> ProposalRow | None:
        """The row that a SAMPLED node was drawn from: the first one that its draft sent for it."""
        known = parent.rows.get(_row_key(node)) if isinstance(parent, TreeNode) else None
        return known.row if known is not None else rows.get(node.parent_id)

    def _resolve(self, parent_id: int) -> "TreeNode | int | None":
        """A live node, the position of a committed token, or None for what is not alive."""
        if parent_id >> DRAFT_INDEX_SHIFT == 0:
            position: int | None = parent_id if parent_id <= len(self.committed) else None
        else:
            if parent_id in self._nodes:
                return self._nodes[parent_id]
            position = self._committed_ids.get(parent_id)
        return self.root if position == len(self.committed) else position

    def _add(self, node: Node, rows: dict[int, ProposalRow]) -> str:
        if node.id in self._nodes or node.id in self._committed_ids:
            return "duplicate"
        parent = self._resolve(node.parent_id)
        if parent is None:
            return "dropped"
        if isinstance(parent, int):
            if self.committed[parent] != node.token:
                return "dropped"
            if len(self._committed_ids) >= 8 * self.capacity:
                return "refused"
            self._committed_ids[node.id] = parent + 1
            return "already_committed"
        draw = None
        if node.kind is NodeKind.SAMPLED:
            source = parent.rows.setdefault(
                _row_key(node), DrawnRow(rows.get(node.parent_id, EMPTY_ROW))
            )
            if node.token in source.drawn:
                return "duplicate"
            chance = node.chance or UNKNOWN_CHANCE
            draw = Draw(node.token, source.row, tuple(source.drawn), chance)
            source.drawn[node.token] = node.id
        is_full = len(self._nodes) >= self.capacity
        if is_full or (draw is not None and len(parent.draws) >= MAX_DRAWS):
            return "refused"
        child = parent.children.get(node.token)
        if child is None:
            child = TreeNode(node.token, parent.position + 1, parent)
            parent.children[node.token] = child
        child.ids.append(node.id)
        self._nodes[node.id] = child
        if draw is not None:
            parent.draws.append(draw)
        else:
            # The wire lets q round up.
            child.chance = max(child.chance, node.chance or min(node.q, 1.0))
        return "added"

    def _commit_one(self, token: int) -> tuple[int, ...]:
        old_root = self.root
        matched = old_root.children.pop(token, None)
        for node in old_root.children.values():
            self._forget(node)
        position = len(self.committed) + 1
        self.committed.append(token)
        if matched is None:
            self.root = TreeNode(token, position)
            return ()
        for node_id in matched.ids:
            del self._nodes[node_id]
            self._committed_ids[node_id] = position
        matched.parent = None
        self.root = matched
        return tuple(matched.ids)

    def _forget(self, node: TreeNode) -> None:
        for gone in (node, *node.descendants()):
            for node_id in gone.ids:
                del self._nodes[node_id]


def _row_key(node: Node) -> RowKey:
    return node.id >> DRAFT_INDEX_SHIFT, node.parent_id
