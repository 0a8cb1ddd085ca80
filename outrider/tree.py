"""The token tree of a session: one pure state machine for draft, engine and verifier.

It knows tokens, node ids and what was committed; it knows no model, no clock and no gRPC. The one
rule about staleness, races, several drafts and restarts lives here: a node whose parent is
committed at position t and whose token equals the committed token t + 1 *is* committed, whoever
drafted it and however late it arrives; a node that hangs off anything else that is not alive is
dropped.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from outrider.errors import InvalidArgumentError
from outrider.types import DRAFT_INDEX_SHIFT, Chunk, Node, NodeKind, ProposalRow

SAMPLED_SURVIVAL = 0.8
"""Assumed chance that a SAMPLED token is accepted. It must not depend on the token (exactness)."""

RANK_SURVIVAL = (0.8, 0.12, 0.04, 0.02)
"""Assumed chance of the first, second, ... LISTED child under shared noise, where q says little."""

EMPTY_ROW = ProposalRow(0, (), ())

RowKey = tuple[int, int]
"""Draft index and parent id: several drafts anchor their rows at one and the same committed tip."""


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A proposal row and the node ids of the tokens drawn from it so far, in the order drawn, those
    included that the tree had no room for: what follows was drawn without them."""

    row: ProposalRow
    drawn: dict[int, int] = field(default_factory=dict)


MAX_DRAWS = 32  # at one node, of all drafts together: testing them is quadratic in their number
REMEMBERED_TOKENS = 512  # whose ids are kept for late children; nobody is further behind


@dataclass(frozen=True, slots=True)
class Draw:
    """A SAMPLED child: its token, the row it was drawn from, the tokens drawn from it before."""

    token: int
    row: ProposalRow
    gone: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class TreeNode:
    """A token below the tip. Nodes of several drafts with the same content are one TreeNode.

    `position` counts emitted tokens up to and including this one; `ids` are the drafts' ids for it;
    `listed_q` and `rank` are set where a draft LISTED it; `draws` are its SAMPLED children in the
    order that they arrived.
    """

    token: int
    position: int
    parent: "TreeNode | None" = None
    ids: list[int] = field(default_factory=list)
    listed_q: float = -1.0
    rank: int = -1
    children: dict[int, "TreeNode"] = field(default_factory=dict)
    draws: list[Draw] = field(default_factory=list)
    rows: dict[RowKey, DrawnRow] = field(default_factory=dict)
    listed_counts: dict[int, int] = field(default_factory=dict)

    def descendants(self) -> Iterator["TreeNode"]:
        """All nodes below this one, parents first."""
        stack = list(self.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())


@dataclass(frozen=True, slots=True)
class Growth:
    """What became of the nodes of a chunk; the counts add up to its number of nodes."""

    added: int = 0
    already_committed: int = 0
    duplicate: int = 0
    dropped: int = 0
    refused: int = 0


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
    def pending_at_tip(self) -> int:
        """Live node ids right below the tip. Their number depends on nothing that hangs below a
        sampled token, so waiting for it anticipates nothing (exactness, trap 2)."""
        return sum(len(child.ids) for child in self.root.children.values())

    def node(self, node_id: int) -> TreeNode | None:
        """The live node that a draft calls `node_id`."""
        return self._nodes.get(node_id)

    def grow(self, chunk: Chunk) -> Growth:
        """Adds what is alive of `chunk`.

        Raises InvalidArgumentError, with the tree unchanged, where a SAMPLED node has no row, a row
        that gives its token no probability, or one that its token was drawn from before.
        """
        rows = {row.parent_id: row for row in chunk.rows}
        if len(self._committed_ids) > 4 * self.capacity:
            oldest = len(self.committed) - REMEMBERED_TOKENS
            self._committed_ids = {i: p for i, p in self._committed_ids.items() if p >= oldest}
        chunk_ids = {node.id for node in chunk.nodes}
        drawn: dict[tuple[RowKey, int], int] = {}
        for node in chunk.nodes:
            if node.kind is NodeKind.SAMPLED:
                self._check(node, rows, chunk_ids)
                self._check_drawn_once(node, drawn)
        counts = dict.fromkeys(("added", "already_committed", "duplicate", "dropped", "refused"), 0)
        for node in chunk.nodes:
            counts[self._add(node, rows)] += 1
        return Growth(**counts)

    def commit(self, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        """Appends emitted tokens; what follows them stays, all else is dropped.

        Returns, for each token, the ids of the node that had drafted it (none: the target's own).
        """
        return [self._commit_one(token) for token in tokens]

    def prune(self, keep: int) -> int:
        """Drops the deepest ids until at most `keep` are alive; returns how many were dropped.

        Depth is known before a token is drawn, so pruning by it anticipates nothing.
        """
        excess = len(self._nodes) - keep
        if excess <= 0:
            return 0
        by_depth = sorted(
            {id(n): n for n in self._nodes.values()}.values(), key=lambda n: -n.position
        )
        cut = next(
            depth
            for depth in sorted({n.position for n in by_depth}, reverse=True)
            if sum(len(n.ids) for n in by_depth if n.position >= depth) >= excess
        )
        before = len(self._nodes)
        for node in by_depth:
            if node.position == cut and node.parent is not None:
                self._forget(node)
                self._drop_draws(node)
                del node.parent.children[node.token]
        return before - len(self._nodes)

    def select(
        self, budget: int, *, max_depth: int | None = None, by_rank: bool = False
    ) -> Subtree:
        """The most promising connected subtree of at most `budget` nodes, `max_depth` deep.

        LISTED nodes compete with their q (or, under shared noise, their rank: `by_rank`). A SAMPLED
        node competes with a weight that knows its context but neither its token nor its q, and
        waits its turn even where another draft listed the same token: chosen after a look at the
        token, it would no longer be a fair draw (exactness, trap 2).
        """
        deepest = None if max_depth is None else self.root.position + max_depth
        return _Selection(self.root, by_rank, deepest).take(budget)

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
            draw = Draw(node.token, source.row, tuple(source.drawn))
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
            draft_index = node.id >> DRAFT_INDEX_SHIFT
            rank = parent.listed_counts.get(draft_index, 0)
            parent.listed_counts[draft_index] = rank + 1
            child.listed_q = max(child.listed_q, min(node.q, 1.0))  # the wire lets q round up
            child.rank = rank if child.rank < 0 else min(child.rank, rank)
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

    @staticmethod
    def _drop_draws(node: TreeNode) -> None:
        if node.parent is not None:
            node.parent.draws = [d for d in node.parent.draws if d.token != node.token]


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


def _row_key(node: Node) -> RowKey:
    return node.id >> DRAFT_INDEX_SHIFT, node.parent_id
