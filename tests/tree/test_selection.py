"""What is verified: a connected subtree within the budget, chosen blind to drawn tokens."""

from dataclasses import dataclass, replace
from random import Random

import pytest
from slow_tree import live_paths, path_of

from outrider.selection import Selection
from outrider.tree import Draw, Subtree, TokenTree, TreeNode
from outrider.types import DRAFT_INDEX_SHIFT, Chunk, Node, NodeKind, ProposalRow

SEEDS = range(30)
WORLDS = 5
VOCAB = 4
EVERYTHING = 10**6


@dataclass(frozen=True)
class Drafted:
    """Nodes in the order that they arrive; a row for each (draft, parent) that was drawn from."""

    nodes: tuple[Node, ...]
    rows: dict[tuple[int, int], ProposalRow]

    def tree(self) -> TokenTree:
        """A tree grown node by node."""
        tree = TokenTree()
        for node in self.nodes:
            row = self.rows.get((node.id >> DRAFT_INDEX_SHIFT, node.parent_id))
            tree.grow(Chunk((node,), () if row is None else (row,)))
        return tree

    def draws(self) -> list[Node]:
        """The SAMPLED nodes."""
        return [node for node in self.nodes if node.kind is NodeKind.SAMPLED]

    def with_node(self, node: Node) -> "Drafted":
        """The same, but for the node of that id."""
        nodes = tuple(node if other.id == node.id else other for other in self.nodes)
        return replace(self, nodes=nodes)


def drafted(random: Random) -> Drafted:
    """Up to three drafts, bushy or deep; each row has probabilities of its own."""
    num_drafts, size = random.randint(1, 3), random.randint(3, 14)
    sampled_share = random.choice((0.3, 0.6))
    nodes: list[Node] = []
    rows: dict[tuple[int, int], ProposalRow] = {}
    drawn: dict[tuple[int, int], list[int]] = {}
    chances: dict[tuple[int, int], float] = {}
    has_chances = random.random() < 0.5
    for counter in range(size):
        draft = random.randint(1, num_drafts)
        own = [node.id for node in nodes if node.id >> DRAFT_INDEX_SHIFT == draft]
        parent_id = random.choice(own[-3:]) if own and random.random() < 0.7 else 0
        key, node_id = (draft, parent_id), draft << DRAFT_INDEX_SHIFT | counter
        before = drawn.setdefault(key, [])
        token, kind = random.randrange(VOCAB), NodeKind.LISTED
        if random.random() < sampled_share and len(before) < 2:
            token = random.choice([t for t in range(VOCAB) if t not in before])
            kind = NodeKind.SAMPLED
            before.append(token)
            probs = [random.uniform(0.1, 1) for _ in range(VOCAB)]
            full = ProposalRow(parent_id, tuple(range(VOCAB)), tuple(p / sum(probs) for p in probs))
            rows.setdefault(key, full)
        q = random.choice((0.05, 0.5, 0.9, 1.0))
        chance = random.choice((0.0, 0.1, 0.6, 1.0)) if has_chances else 0.0
        if kind is NodeKind.SAMPLED:
            chance = chances.setdefault(key, chance)  # of the row, whatever is drawn from it
        nodes.append(Node(node_id, parent_id, token, q, kind, chance))
    return Drafted(tuple(nodes), rows)


Key = tuple[ProposalRow, int]


def key_of(draw: Draw) -> Key:
    """Tells a draw apart without its token: its row, and how many were drawn from it before."""
    return draw.row, len(draw.gone)


def drawn_in(subtree: Subtree) -> set[Key]:
    """The draws that a selection tests."""
    return {key_of(draw) for draws in subtree.draws for draw in draws}


def parent_of(tree: TokenTree, node: Node) -> TreeNode:
    child = tree.node(node.id)
    assert child is not None
    assert child.parent is not None
    return child.parent


def up_to(tree: TokenTree, node: Node, place: int) -> list[Key]:
    """A draw, and all draws at its parent that are tested before it."""
    keys = [key_of(draw) for draw in parent_of(tree, node).draws]
    return keys[: place + 1]


def place_of(tree: TokenTree, drafted: Drafted, node: Node) -> int:
    """How many draws at its parent are tested before a SAMPLED node."""
    key = (node.id >> DRAFT_INDEX_SHIFT, node.parent_id)
    siblings = [n for n in drafted.draws() if (n.id >> DRAFT_INDEX_SHIFT, n.parent_id) == key]
    keys = [key_of(draw) for draw in parent_of(tree, node).draws]
    return keys.index((drafted.rows[key], siblings.index(node)))


def listed(token: int, q: float) -> Node:
    return Node(1 << 24 | token, 0, token, q, NodeKind.LISTED)


@pytest.fixture(params=SEEDS)
def random(request: pytest.FixtureRequest) -> Random:
    return Random(request.param)


def test_selection_is_within_the_budget(random: Random) -> None:
    tree = drafted(random).tree()
    assert all(len(tree.select(b)) <= b for b in range(16))


def test_selection_uses_the_whole_budget(random: Random) -> None:
    tree = drafted(random).tree()
    size = len(list(tree.root.descendants()))
    sizes = [len(tree.select(b)) for b in range(16)]
    assert sizes == [min(b, size) for b in range(16)]


def test_parents_come_first(random: Random) -> None:
    subtree = drafted(random).tree().select(6)
    assert all(parent <= index for index, parent in enumerate(subtree.parents))


def test_parents_are_the_parents_in_the_tree(random: Random) -> None:
    tree = drafted(random).tree()
    subtree = tree.select(6)
    rows = (tree.root, *subtree.nodes)
    assert all(
        node.parent is rows[parent]
        for node, parent in zip(subtree.nodes, subtree.parents, strict=True)
    )


def test_children_lead_to_the_rows_of_their_tokens(random: Random) -> None:
    subtree = drafted(random).tree().select(6)
    reached = {
        (row, child): token
        for row, children in enumerate(subtree.children)
        for token, child in children.items()
    }
    expected = {
        (parent, index + 1): node.token
        for index, (node, parent) in enumerate(zip(subtree.nodes, subtree.parents, strict=True))
    }
    assert reached == expected


def test_draws_lead_to_selected_children(random: Random) -> None:
    subtree = drafted(random).tree().select(6)
    for draws, children in zip(subtree.draws, subtree.children, strict=True):
        assert all(draw.token in children for draw in draws)


def test_draws_of_a_node_are_tested_in_the_order_they_arrived_without_a_gap(random: Random) -> None:
    tree = drafted(random).tree()
    subtree = tree.select(random.randint(0, 12))
    for node, draws in zip((tree.root, *subtree.nodes), subtree.draws, strict=True):
        assert list(draws) == node.draws[: len(draws)]


def test_enough_budget_takes_everything(random: Random) -> None:
    made = drafted(random)
    tree = made.tree()
    taken = {path_of(tree, node) for node in tree.select(EVERYTHING).nodes}
    assert taken == set(live_paths(tree, (node.id for node in made.nodes)).values())


def test_enough_budget_tests_every_draw(random: Random) -> None:
    made = drafted(random)
    assert len(drawn_in(made.tree().select(EVERYTHING))) == len(made.draws())


@pytest.mark.parametrize("max_depth", [0, 1, 2])
def test_selection_is_no_deeper_than_asked(random: Random, max_depth: int) -> None:
    subtree = drafted(random).tree().select(EVERYTHING, max_depth=max_depth)
    assert max((node.position for node in subtree.nodes), default=0) <= max_depth


def test_likelier_listed_nodes_come_first() -> None:
    tree = TokenTree()
    tree.grow(Chunk((listed(0, 0.2), listed(1, 0.7), listed(2, 0.1))))
    assert [node.token for node in tree.select(2).nodes] == [1, 0]


def test_a_chance_that_the_draft_estimated_counts_more_than_q() -> None:
    tree = TokenTree()
    nodes = (listed(0, 0.2), listed(1, 0.7), listed(2, 0.1))
    chances = (0.8, 0.12, 0.04)
    tree.grow(Chunk(tuple(replace(n, chance=c) for n, c in zip(nodes, chances, strict=True))))
    assert [node.token for node in tree.select(2).nodes] == [0, 1]


def survivals(tree: TokenTree, subtree: Subtree) -> list[float]:
    """For each node of a selection of LISTED ones the product of chances down to it."""
    known = {id(tree.root): 1.0}
    for node in subtree.nodes:
        known[id(node)] = known[id(node.parent)] * node.chance
    return [known[id(node)] for node in subtree.nodes]


@pytest.mark.parametrize("min_chance", [0.0, 0.05, 0.3, 0.9, 1.0])
def test_nodes_below_the_least_chance_are_left_out(random: Random, min_chance: float) -> None:
    made = drafted(random)
    listed_only = tuple(replace(node, kind=NodeKind.LISTED) for node in made.nodes)
    tree = replace(made, nodes=listed_only, rows={}).tree()
    everything = tree.select(EVERYTHING)
    expected = [s for s in survivals(tree, everything) if s >= min_chance]
    chosen = tree.select(EVERYTHING, min_chance=min_chance)
    assert sorted(survivals(tree, chosen)) == sorted(expected)


def test_trees_of_one_pass_share_its_budget_by_chance() -> None:
    trees = []
    for q in (0.9, 0.5):
        tree = TokenTree()
        ids = [1 << DRAFT_INDEX_SHIFT | counter for counter in range(4)]
        parents = [0, *ids]
        tree.grow(
            Chunk(tuple(Node(i, parents[n], 1, q, NodeKind.LISTED) for n, i in enumerate(ids)))
        )
        trees.append(tree)
    for budget, sizes in enumerate([(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (4, 1), (4, 2)]):
        both = Selection()
        for tree in trees:
            both.add(tree.root)
        assert tuple(map(len, both.take(budget))) == sizes


def test_a_tree_alone_in_a_pass_is_selected_as_by_itself(random: Random) -> None:
    tree = drafted(random).tree()
    for most in range(8):
        selection = Selection()
        selection.add(tree.root, most=most)
        assert selection.take(EVERYTHING) == [tree.select(most)]


@pytest.mark.parametrize("min_chance", [0.0, 0.2])
def test_another_drawn_token_does_not_change_which_draws_are_tested_up_to_it(
    random: Random, min_chance: float
) -> None:
    """Every token that a draw could have been, at every budget; its descendants move along."""
    for _ in range(WORLDS):
        made = drafted(random)
        tree = made.tree()
        for node in made.draws():
            place = place_of(tree, made, node)
            siblings = {
                other.token
                for other in made.draws()
                if other.parent_id == node.parent_id and other.id >> 24 == node.id >> 24
            }
            for token in set(range(VOCAB)) - siblings:
                other = made.with_node(replace(node, token=token)).tree()
                keys = up_to(tree, node, place)
                for budget in range(len(made.nodes) + 1):
                    before, after = (
                        drawn_in(t.select(budget, min_chance=min_chance)) for t in (tree, other)
                    )
                    assert [key in after for key in keys] == [key in before for key in keys]


@pytest.mark.parametrize("min_chance", [0.0, 0.2])
def test_descendants_of_a_draw_do_not_change_which_draws_are_tested_up_to_it(
    random: Random, min_chance: float
) -> None:
    for _ in range(WORLDS):
        made = drafted(random)
        tree = made.tree()
        for node in made.draws():
            below = {node.id}
            for other in made.nodes:
                if other.parent_id in below:
                    below.add(other.id)
            kept = tuple(n for n in made.nodes if n.id == node.id or n.id not in below)
            bare = replace(made, nodes=kept).tree()
            keys = up_to(tree, node, place_of(tree, made, node))
            for budget in range(len(made.nodes) + 1):
                before, after = (
                    drawn_in(t.select(budget, min_chance=min_chance)) for t in (tree, bare)
                )
                assert [key in after for key in keys] == [key in before for key in keys]


@pytest.mark.parametrize("token", range(VOCAB))
@pytest.mark.parametrize("q", [1.0, 1.0001], ids=["one", "rounded-above-one"])
def test_no_q_below_a_drawn_token_overtakes_the_draw(token: int, q: float) -> None:
    """The draw of token 0 hides below a LISTED node: there its descendants may not show first."""
    row = ProposalRow(0, tuple(range(VOCAB)), (1 / VOCAB,) * VOCAB)
    drawn = Node(2 << 24, 0, token, 1 / VOCAB, NodeKind.SAMPLED)
    below = Node(2 << 24 | 1, drawn.id, 1, q, NodeKind.LISTED)
    tree = TokenTree()
    tree.grow(Chunk((listed(0, 0.5), drawn, below), (row,)))
    assert drawn_in(tree.select(2)) == {(row, 0)}


def test_q_of_a_sampled_token_changes_nothing(random: Random) -> None:
    made = drafted(random)
    other = made
    for node in made.draws():
        other = other.with_node(replace(node, q=random.random()))
    for budget in range(len(made.nodes) + 1):
        one, two = made.tree().select(budget), other.tree().select(budget)
        assert [n.ids for n in one.nodes] == [n.ids for n in two.nodes]


def test_chance_that_the_row_gave_a_drawn_token_changes_nothing(random: Random) -> None:
    made = drafted(random)
    uniform = {key: replace(row, probs=(1 / VOCAB,) * VOCAB) for key, row in made.rows.items()}
    for budget in range(len(made.nodes) + 1):
        one = made.tree().select(budget)
        two = replace(made, rows=uniform).tree().select(budget)
        assert [n.ids for n in one.nodes] == [n.ids for n in two.nodes]
