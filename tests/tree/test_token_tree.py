"""TokenTree equals an obviously slow model under any sequence of chunks, commits and prunings."""

from collections.abc import Iterator
from dataclasses import astuple
from random import Random

import pytest
from slow_tree import LAST_COUNTER, ChunkMaker, SlowTree, contents, live_paths, path_of

from outrider.errors import InvalidArgumentError
from outrider.tree import Growth, TokenTree
from outrider.types import Chunk, Node, NodeKind, ProposalRow

SEQUENCES = range(60)
OPERATIONS = 60

DRAFT = 1 << 24
OTHER_DRAFT = 2 << 24
LAST_DRAFT = 255 << 24

ROW = ProposalRow(0, (0, 1, 2), (0.5, 0.25, 0.25))


def listed(node_id: int, parent_id: int, token: int, q: float = 0.5) -> Node:
    return Node(node_id, parent_id, token, q, NodeKind.LISTED)


def sampled(node_id: int, parent_id: int, token: int, q: float = 0.5) -> Node:
    return Node(node_id, parent_id, token, q, NodeKind.SAMPLED)


def grown(*nodes: Node, rows: tuple[ProposalRow, ...] = (), capacity: int = 4096) -> TokenTree:
    tree = TokenTree(capacity=capacity)
    tree.grow(Chunk(nodes, rows))
    return tree


def history(seed: int) -> Iterator[tuple[TokenTree, SlowTree, ChunkMaker, object, object]]:
    """The tree and its model after each operation, with what both returned."""
    random = Random(seed)
    emitted = random.choices(range(3), k=random.choice((0, 0, 4)))
    capacity = random.choice((4096, 4096, 12, 3))
    tree, model = TokenTree(emitted, capacity=capacity), SlowTree(emitted, capacity)
    maker = ChunkMaker(random)
    for _ in range(OPERATIONS):
        roll = random.random()
        if roll < 0.7:
            chunk = maker.chunk(len(model.committed))
            yield tree, model, maker, tree.grow(chunk), model.grow(chunk.nodes)
        else:
            tokens = random.choices(range(3), k=random.randint(1, 3))
            live = list(model.live.values())
            if live and random.random() < 0.7:
                tokens = list(random.choice(live)[len(model.committed) :])
            fresh = random.random() < 0.25
            committed = tree.commit(tokens, fresh=fresh), model.commit(tokens, fresh=fresh)
            yield tree, model, maker, *committed


@pytest.mark.parametrize("seed", SEQUENCES)
def test_operations_return_what_the_model_returns(seed: int) -> None:
    assert all(got == wanted for *_, got, wanted in history(seed))


@pytest.mark.parametrize("seed", SEQUENCES)
def test_live_ids_have_the_paths_of_the_model(seed: int) -> None:
    for tree, model, maker, *_ in history(seed):
        assert live_paths(tree, (node.id for node in maker.sent)) == model.live


@pytest.mark.parametrize("seed", SEQUENCES)
def test_pending_counts_the_live_ids_of_the_model(seed: int) -> None:
    assert all(tree.pending == len(model.live) for tree, model, *_ in history(seed))


@pytest.mark.parametrize("seed", SEQUENCES)
def test_positions_count_emitted_tokens(seed: int) -> None:
    for tree, *_ in history(seed):
        assert all(n.position == len(path_of(tree, n)) for n in tree.root.descendants())


@pytest.mark.parametrize("seed", SEQUENCES)
def test_every_draw_has_a_child_of_its_token(seed: int) -> None:
    for tree, *_ in history(seed):
        nodes = (tree.root, *tree.root.descendants())
        assert all(draw.token in node.children for node in nodes for draw in node.draws)


@pytest.mark.parametrize("seed", SEQUENCES)
def test_growth_adds_up_to_the_nodes_of_the_chunk(seed: int) -> None:
    random = Random(seed)
    tree, maker = TokenTree(capacity=5), ChunkMaker(random)
    for _ in range(20):
        chunk = maker.chunk(0)
        assert sum(astuple(tree.grow(chunk))) == len(chunk.nodes)


def test_a_late_node_that_equals_the_committed_token_is_committed() -> None:
    tree = TokenTree()
    tree.commit([5])
    assert tree.grow(Chunk((listed(DRAFT, 0, 5),))) == Growth(already_committed=1)


def test_what_hangs_off_a_late_committed_node_is_alive() -> None:
    tree = TokenTree()
    tree.commit([5])
    tree.grow(Chunk((listed(DRAFT, 0, 5), listed(DRAFT + 1, DRAFT, 6))))
    assert tree.commit([6]) == [(DRAFT + 1,)]


def test_a_late_node_that_differs_from_the_committed_token_is_dropped_with_its_children() -> None:
    tree = TokenTree()
    tree.commit([5])
    chunk = Chunk((listed(DRAFT, 0, 4), listed(DRAFT + 1, DRAFT, 6)))
    assert tree.grow(chunk) == Growth(dropped=2)


def test_nodes_of_several_drafts_with_one_content_are_one_node() -> None:
    tree = grown(listed(DRAFT, 0, 5))
    tree.grow(Chunk((listed(OTHER_DRAFT, 0, 5),)))
    assert tree.node(DRAFT) is tree.node(OTHER_DRAFT)


def test_a_resumed_tree_takes_nodes_that_anchor_at_its_tip() -> None:
    tree = TokenTree([7, 8, 9])
    assert tree.grow(Chunk((listed(DRAFT, 3, 1),))) == Growth(added=1)


def test_an_anchor_beyond_the_tip_is_dropped() -> None:
    assert TokenTree([7]).grow(Chunk((listed(DRAFT, 2, 1),))) == Growth(dropped=1)


def test_the_highest_anchor_is_not_taken_for_a_node() -> None:
    tree = grown(listed(DRAFT, 0, 5))
    assert tree.grow(Chunk((listed(DRAFT + 1, LAST_COUNTER, 5),))) == Growth(dropped=1)


@pytest.mark.parametrize("node_id", [DRAFT, DRAFT + LAST_COUNTER, LAST_DRAFT + LAST_COUNTER])
def test_node_ids_at_the_borders_are_found(node_id: int) -> None:
    tree = grown(listed(node_id, 0, 5), listed(LAST_DRAFT, node_id, 6))
    assert tree.commit([5, 6]) == [(node_id,), (LAST_DRAFT,)]


def test_drafts_that_anchor_at_one_tip_keep_rows_of_their_own() -> None:
    tree = grown(sampled(DRAFT, 0, 0), rows=(ROW,))
    other = ProposalRow(0, (1, 2), (0.5, 0.5))
    tree.grow(Chunk((sampled(OTHER_DRAFT, 0, 1),), (other,)))
    assert [draw.row for draw in tree.root.draws] == [ROW, other]


def test_a_draw_knows_the_tokens_drawn_from_its_row_before() -> None:
    tree = grown(sampled(DRAFT, 0, 2), sampled(DRAFT + 1, 0, 0), rows=(ROW,))
    assert [draw.gone for draw in tree.root.draws] == [(), (2,)]


def test_a_draw_knows_earlier_ones_that_came_with_another_chunk() -> None:
    tree = grown(sampled(DRAFT, 0, 2), rows=(ROW,))
    tree.grow(Chunk((sampled(DRAFT + 1, 0, 0),)))
    assert tree.root.draws[-1].gone == (2,)


def test_a_draw_knows_earlier_ones_that_the_tree_had_no_room_for() -> None:
    tree = grown(listed(OTHER_DRAFT, 0, 1), sampled(DRAFT, 0, 2), rows=(ROW,), capacity=1)
    tree.capacity = 2
    tree.grow(Chunk((sampled(DRAFT + 1, 0, 0),)))
    assert tree.root.draws[-1].gone == (2,)


def test_a_refused_draw_that_is_sent_again_stays_away() -> None:
    chunk = Chunk((sampled(DRAFT, 0, 2),), (ROW,))
    tree = grown(listed(OTHER_DRAFT, 0, 1), capacity=1)
    tree.grow(chunk)
    tree.capacity = 2
    assert tree.grow(chunk) == Growth(duplicate=1)


def test_a_stale_draw_needs_no_row() -> None:
    tree = TokenTree([5])
    assert tree.grow(Chunk((sampled(DRAFT, 0, 4),))) == Growth(dropped=1)


def spent_below_a_drawn_tip() -> TokenTree:
    """Token 0 was drafted twice and taken; token 2 below it, drawn and listed, is spent."""
    below = ProposalRow(DRAFT, (0, 1, 2), (0.5, 0.25, 0.25))
    nodes = (sampled(DRAFT, 0, 0), sampled(DRAFT + 1, DRAFT, 2), listed(DRAFT + 2, DRAFT + 1, 1))
    tree = grown(*nodes, rows=(ROW, below))
    tree.grow(Chunk((listed(OTHER_DRAFT, 0, 0), listed(OTHER_DRAFT + 1, OTHER_DRAFT, 2))))
    assert tree.commit([0], fresh=True) == [(DRAFT, OTHER_DRAFT)]
    return tree


def test_nothing_below_a_fresh_tip_is_ever_selected() -> None:
    tree = spent_below_a_drawn_tip()
    assert (len(tree.select(9)), tree.select(9).draws, tree.pending) == (0, ((),), 0)


def test_what_hangs_off_a_spent_node_is_dropped_however_late_it_arrives() -> None:
    tree = spent_below_a_drawn_tip()
    late = Chunk((listed(DRAFT + 3, DRAFT + 2, 1), listed(OTHER_DRAFT + 2, OTHER_DRAFT + 1, 1)))
    assert tree.grow(late) == Growth(dropped=2)


def test_what_hangs_off_a_fresh_tip_itself_was_not_looked_at_and_lives() -> None:
    tree = spent_below_a_drawn_tip()
    late = Chunk((listed(OTHER_DRAFT + 2, OTHER_DRAFT, 1), listed(DRAFT + 4, 1, 0)))
    assert tree.grow(late) == Growth(added=2)


def test_a_late_draw_knows_the_spent_ones_from_its_row() -> None:
    tree = spent_below_a_drawn_tip()
    tree.grow(Chunk((sampled(DRAFT + 3, DRAFT, 1),)))
    assert [(draw.token, draw.gone) for draw in tree.root.draws] == [(1, (2,))]


def test_a_spent_draw_that_is_sent_again_stays_away() -> None:
    tree = spent_below_a_drawn_tip()
    assert tree.grow(Chunk((sampled(DRAFT + 1, DRAFT, 2),))) == Growth(duplicate=1)


def first_draw() -> TokenTree:
    return grown(sampled(DRAFT, 0, 0), listed(DRAFT + 1, DRAFT, 1), rows=(ROW,))


HALF_ROW = ProposalRow(DRAFT, (0, 1), (1.0, 0.0))

BAD_CHUNKS: dict[str, tuple[Node, tuple[ProposalRow, ...]]] = {
    "no-row": (sampled(DRAFT + 9, DRAFT, 0), ()),
    "no-row-for-a-parent-in-the-chunk": (sampled(DRAFT + 9, DRAFT + 7, 0), ()),
    "token-outside-the-row": (sampled(DRAFT + 9, DRAFT, 2), (HALF_ROW,)),
    "token-without-probability": (sampled(DRAFT + 9, DRAFT, 1), (HALF_ROW,)),
    "drawn-before": (sampled(DRAFT + 9, 0, 0), ()),
    "drawn-before-with-the-row-sent-again": (sampled(DRAFT + 9, 0, 0), (ROW,)),
    "drawn-twice-in-the-chunk": (sampled(DRAFT + 9, 0, 1), (ROW,)),
}


@pytest.fixture(params=list(BAD_CHUNKS.values()), ids=list(BAD_CHUNKS))
def bad_chunk(request: pytest.FixtureRequest) -> Chunk:
    """Good nodes, then one that cannot be."""
    node, rows = request.param
    return Chunk((listed(DRAFT + 7, DRAFT, 2), sampled(DRAFT + 8, 0, 1), node), rows)


def test_a_chunk_that_cannot_be_is_refused(bad_chunk: Chunk) -> None:
    with pytest.raises(InvalidArgumentError):
        first_draw().grow(bad_chunk)


def test_a_refused_chunk_leaves_the_tree_unchanged(bad_chunk: Chunk) -> None:
    tree = first_draw()
    with pytest.raises(InvalidArgumentError):
        tree.grow(bad_chunk)
    assert contents(tree.root) == contents(first_draw().root)


def test_a_refused_chunk_leaves_no_ids_behind(bad_chunk: Chunk) -> None:
    tree = first_draw()
    with pytest.raises(InvalidArgumentError):
        tree.grow(bad_chunk)
    assert live_paths(tree, range(DRAFT, DRAFT + 10)) == {DRAFT: (0,), DRAFT + 1: (0, 1)}


def test_what_hangs_off_a_committed_token_is_never_an_error():
    tree = TokenTree()
    tree.grow(Chunk((Node(1 << 24, 0, 5, 0.9, NodeKind.LISTED),)))
    tree.commit([5, 6])
    late = Node((1 << 24) + 1, 1 << 24, 7, 0.5, NodeKind.SAMPLED)
    other_row = ProposalRow(1 << 24, (8,), (1.0,))
    assert tree.grow(Chunk((late,), (other_row,))).dropped == 1


def test_draws_at_one_node_are_bounded():
    ids = tuple(range(40))
    row = ProposalRow(0, ids, (1 / 40,) * 40)
    growth = TokenTree().grow(Chunk(tuple(sampled(DRAFT + i, 0, i) for i in ids), (row,)))
    assert (growth.added, growth.refused) == (32, 8)


def test_ids_of_committed_tokens_are_not_kept_for_ever():
    tree = TokenTree(capacity=4)
    for position in range(600):
        tree.commit([5])
        tree.grow(Chunk((listed(DRAFT + position, position, 5),)))
    assert len(tree._committed_ids) <= 513
    flood = Chunk(tuple(listed(OTHER_DRAFT + i, 599, 5) for i in range(1000)))
    assert tree.grow(flood).refused > 0
    assert len(tree._committed_ids) <= 513 + 8 * 4
