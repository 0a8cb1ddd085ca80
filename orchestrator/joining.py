"""What a draft that joins is told of the tree that drafts of its model have grown already. Pure."""

from collections.abc import Collection

from outrider.tree import TokenTree
from outrider.types import DRAFT_INDEX_SHIFT, Chunk, Node, NodeKind

MOST_NODES = 1024
"""Told at most; the deepest are left out."""


def alive(tree: TokenTree, indices: Collection[int]) -> Chunk | None:
    """The nodes of the drafts `indices` that can be reached from the tip through one another,
    parents first, LISTED by their chances; None: there are none.

    Only for sessions in which the target decides: what was drawn is nobody else's business
    (exactness, trap 2).

    >>> tree = TokenTree([7])
    >>> _ = tree.grow(Chunk((Node(1 << 24, 1, 5, 0.9, NodeKind.LISTED, 0.8),)))
    >>> alive(tree, {1}).nodes[0]
    Node(id=16777216, parent_id=1, token=5, q=0.8, kind=<NodeKind.LISTED: 'listed'>, chance=0.8)
    >>> alive(tree, {2}) is None
    True
    """
    nodes: list[Node] = []
    level = [(tree.root.position, tree.root)]
    while level and len(nodes) < MOST_NODES:
        below = []
        for parent_id, parent in level:
            for child in parent.children.values():
                own = next((i for i in child.ids if i >> DRAFT_INDEX_SHIFT in indices), None)
                if own is None:
                    continue
                chance = max(child.chance, 0.0)
                nodes.append(Node(own, parent_id, child.token, chance, NodeKind.LISTED, chance))
                below.append((own, child))
        level = below
    return Chunk(tuple(nodes[:MOST_NODES])) if nodes else None
