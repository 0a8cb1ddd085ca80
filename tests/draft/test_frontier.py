"""Where a draft goes on: the open nodes with the highest chances, each draft in its own part."""

from random import Random

import pytest

from draft_service.frontier import Frontier
from outrider.nodes import TreeNode
from outrider.plans import DraftPart, DraftPlan
from outrider.tree import TokenTree
from outrider.types import Chunk, Node, NodeKind, ProposalRow

SEEDS = range(40)
VOCAB = 6
EVERY_TOKEN = tuple(range(VOCAB))
UNIFORM = (1 / VOCAB,) * VOCAB


@pytest.fixture(params=SEEDS)
def random(request: pytest.FixtureRequest) -> Random:
    return Random(request.param)


def grown(random: Random, size: int = 40) -> TokenTree:
    """LISTED nodes below random parents, now and then one that was drawn."""
    tree = TokenTree()
    ids = [0]
    drawn = set()
    for counter in range(size):
        node_id, parent = 1 << 24 | counter, random.choice(ids[-12:])
        chance, token = random.choice((0.1, 0.4, 0.7, 0.95)), random.randrange(VOCAB)
        kind, rows = NodeKind.LISTED, ()
        if random.random() < 0.2 and (parent, token) not in drawn:
            drawn.add((parent, token))
            kind, rows = NodeKind.SAMPLED, (ProposalRow(parent, EVERY_TOKEN, UNIFORM),)
        if tree.grow(Chunk((Node(node_id, parent, token, 0.5, kind, chance),), rows)).added:
            ids.append(node_id)
    return tree


def chance_of(node: TreeNode) -> float:
    """What a node weighs among its siblings, every row here being able to give every token: below
    it nothing shows of a draw before the last one of its parent is taken.
    """
    assert node.parent is not None
    draws = node.parent.draws
    last = min([1.0, *(draw.chance for draw in draws)])
    is_drawn = any(draw.token == node.token for draw in draws)
    return last if is_drawn else min(node.chance, last)


def survival(root: TreeNode, node: TreeNode) -> float:
    """The product of chances from the tip down to a node."""
    product, at = 1.0, node
    while at is not root:
        product *= chance_of(at)
        assert at.parent is not None
        at = at.parent
    return product


def is_leaf(node: TreeNode) -> bool:
    return not node.children


def places(tree: TokenTree, plan: DraftPlan) -> dict[int, float]:
    """The whole frontier: the nodes by identity, with their chances."""
    frontier = Frontier(is_leaf)
    frontier.restart(tree.root, plan)
    return {id(spot.node): spot.chance for spot in frontier.best(10**6)}


def test_a_tree_goes_on_at_every_leaf_the_likeliest_first(random: Random) -> None:
    tree = grown(random)
    frontier = Frontier(is_leaf)
    frontier.restart(tree.root, DraftPlan(256, part=DraftPart.TREE))
    spots = frontier.best(10**6)
    leaves = [node for node in tree.root.descendants() if is_leaf(node)]
    assert {id(spot.node) for spot in spots} == {id(node) for node in leaves}
    assert [spot.chance for spot in spots] == sorted((s.chance for s in spots), reverse=True)
    for spot in spots:
        assert spot.chance == pytest.approx(survival(tree.root, spot.node))


def test_asking_changes_nothing(random: Random) -> None:
    tree = grown(random)
    frontier = Frontier(is_leaf)
    frontier.restart(tree.root, DraftPlan(256, part=DraftPart.TREE))
    once = frontier.best(5)
    assert [s.node for s in frontier.best(5)] == [s.node for s in once]
    assert [s.node for s in frontier.best(3)] == [s.node for s in once[:3]]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("min_chance", [0.0, 0.2, 1.0])
def test_nothing_goes_on_beyond_the_plan(random: Random, depth: int, min_chance: float) -> None:
    tree = grown(random)
    plan = DraftPlan(depth, min_chance=min_chance, part=DraftPart.TREE)
    expected = {
        id(node)
        for node in tree.root.descendants()
        if is_leaf(node) and node.position < depth and survival(tree.root, node) >= min_chance
    }
    if is_leaf(tree.root) and depth:
        expected.add(id(tree.root))
    assert set(places(tree, plan)) == expected


def test_a_chain_goes_on_at_the_end_of_the_first_children_only(random: Random) -> None:
    tree = grown(random)
    frontier = Frontier(is_leaf)
    frontier.restart(tree.root, DraftPlan(256, part=DraftPart.CHAIN))
    [spot] = frontier.best(10**6)
    node = spot.node
    while node.parent is not None:
        siblings = node.parent.children.values()
        assert chance_of(node) == max(map(chance_of, siblings))
        node = node.parent


@pytest.mark.parametrize("shares", [1, 2, 3, 7])
def test_a_chain_and_its_branches_are_the_tree_and_nothing_twice(
    random: Random, shares: int
) -> None:
    tree = grown(random)
    whole = places(tree, DraftPlan(256, part=DraftPart.TREE))
    parts = [places(tree, DraftPlan(256, part=DraftPart.CHAIN))]
    for share in range(shares):
        plan = DraftPlan(256, part=DraftPart.BRANCHES, share=share, shares=shares)
        parts.append(places(tree, plan))
    assert sum(map(len, parts)) == len(whole)
    assert {key: chance for part in parts for key, chance in part.items()} == whole


def test_children_that_came_since_are_open_and_their_parent_no_longer() -> None:
    tree = TokenTree()
    frontier = Frontier(is_leaf)
    frontier.restart(tree.root, DraftPlan(4, part=DraftPart.TREE))
    assert [spot.node for spot in frontier.best(9)] == [tree.root]
    nodes = [Node(1 << 24 | i, 0, i, 0.5, NodeKind.LISTED, c) for i, c in enumerate((0.2, 0.7))]
    tree.grow(Chunk(tuple(nodes)))
    frontier.extend(tree.root)
    assert [(spot.node.token, spot.chance) for spot in frontier.best(9)] == [(1, 0.7), (0, 0.2)]


def known(frontier: Frontier) -> list[tuple[int, float]]:
    """The whole frontier in no order: nodes by identity, with their chances."""
    return sorted((id(spot.node), spot.chance) for spot in frontier.best(10**6))


@pytest.mark.parametrize("part", DraftPart)
@pytest.mark.parametrize("is_likely", [True, False])
def test_following_a_verdict_is_the_same_as_looking_at_the_tree_again(
    random: Random, part: DraftPart, is_likely: bool
) -> None:
    tree = grown(random)
    plan = DraftPlan(6, min_chance=0.02, part=part, share=1, shares=2)
    frontier = Frontier(is_leaf)
    frontier.restart(tree.root, plan)
    for _ in range(4):
        children = list(tree.root.children.values())
        node = max(children, key=chance_of) if is_likely and children else None
        node = node or (random.choice(children) if children else None)
        tree.commit([node.token if node is not None else random.randrange(VOCAB)])
        frontier.follow(tree.root, plan, {tree.root, *tree.root.descendants()})
        again = Frontier(is_leaf)
        again.restart(tree.root, plan)
        expected = known(again)
        assert [key for key, _ in known(frontier)] == [key for key, _ in expected]
        assert [c for _, c in known(frontier)] == pytest.approx([c for _, c in expected])


def test_a_draft_that_gets_another_part_looks_at_the_tree_again(random: Random) -> None:
    tree = grown(random)
    frontier = Frontier(is_leaf)
    frontier.restart(tree.root, DraftPlan(256, part=DraftPart.CHAIN))
    live = {tree.root, *tree.root.descendants()}
    for part in DraftPart:
        plan = DraftPlan(256, part=part)
        frontier.follow(tree.root, plan, live)
        assert dict(known(frontier)) == places(tree, plan)


@pytest.mark.parametrize("part", [DraftPart.CHAIN, DraftPart.TREE])
def test_what_the_verifier_waits_for_comes_first_however_unlikely(part: DraftPart) -> None:
    tree = TokenTree()
    frontier = Frontier(is_leaf)
    plan = DraftPlan(6, 2, min_chance=0.5, part=part, min_depth=3)
    frontier.restart(tree.root, plan)
    below, chances = 0, (0.4, 0.3)
    for depth in range(3):
        [spot] = frontier.best(1)
        assert spot.is_awaited
        assert (spot.node.position, frontier.missing) == (depth, 3 - depth)
        ids = [1 << 24 | 2 * depth + i for i in range(2)]
        nodes = (
            Node(n, below, n % 2, 0.5, NodeKind.LISTED, c)
            for n, c in zip(ids, chances, strict=True)
        )
        tree.grow(Chunk(tuple(nodes)))
        frontier.extend(spot.node)
        below = ids[0]
    assert not frontier.best(9) and not frontier.missing, "deep enough, and less likely than 0.5"
    tree.commit([0])
    frontier.follow(tree.root, plan, {tree.root, *tree.root.descendants()})
    assert (frontier.best(9)[0].node.position, frontier.missing) == (3, 1)


def test_for_branches_nobody_waits() -> None:
    tree = TokenTree()
    frontier = Frontier(is_leaf)
    frontier.restart(tree.root, DraftPlan(6, 2, part=DraftPart.BRANCHES, min_depth=3))
    assert not frontier.missing


@pytest.mark.parametrize("part", DraftPart)
@pytest.mark.parametrize("size", [1, 4])
def test_nodes_that_others_made_are_known_as_if_one_looked_at_the_tree_again(
    random: Random, part: DraftPart, size: int
) -> None:
    tree = TokenTree()
    plan = DraftPlan(256, part=part, share=1, shares=2)
    frontier = Frontier(is_leaf)
    frontier.restart(tree.root, plan)
    ids = [0]
    appended = 0
    for start in range(0, 40, size):
        new = []
        for counter in range(start, start + size):
            chance, token = random.choice((0.1, 0.4, 0.7, 0.95)), random.randrange(VOCAB)
            parent = random.choice(ids[-3:])
            new.append(Node(1 << 24 | counter, parent, token, 0.5, NodeKind.LISTED, chance))
            ids.append(new[-1].id)
        tree.grow(Chunk(tuple(new)))
        made = [node for n in new if (node := tree.node(n.id)) is not None]
        if frontier.append(made):
            appended += 1
        else:
            frontier.restart(tree.root, plan)
        assert dict(known(frontier)) == places(tree, plan)
    assert appended
