"""Trees that grow where the draft expects most, and passes that take what is likely enough: the law
stays the target's, as long as no chance knows a token that was drawn (exactness, trap 2)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from draft_service import frontier
from outrider.nodes import TreeNode
from outrider.plans import DraftPart
from outrider.sampling.history import History
from outrider.tree import Subtree, TokenTree
from outrider.types import AcceptanceMode, Chunk, Node, NodeKind, SamplingParams

from .enumeration import (
    BLOCK,
    REJECTION,
    Action,
    Draft,
    Reopen,
    Simulation,
    Spread,
    Verify,
    production_draft,
)
from .worlds import ByPrefix, Table

TOLERANCE = 1e-9
CLEARLY_WRONG = 1e-3

TARGET = Table(((1, 2, 3), (3, 1, 1), (0, 1, 4), (2, 2, 1)))
DRAFTS = (
    Table(((2, 2, 1), (1, 1, 0), (1, 5, 3))),
    Table(((1, 0, 4), (1, 3, 1))),
)
RULES = [REJECTION, BLOCK, SamplingParams(mode=AcceptanceMode.MATCH)]

SCHEDULES: dict[str, tuple[Action, ...]] = {
    "one": (Spread(0, 3), Verify(3)),
    "two-on-one-tree": (Spread(0, 2), Spread(1, 2), Verify(3)),
    "in-turns": (Spread(0, 1), Spread(1, 1), Spread(0, 1), Verify(2)),
    "a-chain-and-branches": (Draft(0, 2), Spread(1, 2), Verify(3)),
    "carried-over": (Spread(0, 3), Verify(1), Spread(1, 1), Verify(2)),
}


def hashed(node: Node, *, knows_token: bool) -> float:
    """A chance that looks arbitrary; of a SAMPLED node it knows the parent, or more than it may."""
    token = node.token if knows_token or node.kind is NodeKind.LISTED else -1
    return (1 + (7 * node.parent_id + 5 * token + 3) % 11) / 12


def with_chances(*, knows_token: bool = False) -> Callable[[Chunk], Chunk]:
    def send(chunk: Chunk) -> Chunk:
        nodes = (replace(n, chance=hashed(n, knows_token=knows_token)) for n in chunk.nodes)
        return replace(chunk, nodes=tuple(nodes))

    return send


def at_least(min_chance: float) -> Callable[[TokenTree, int], Subtree]:
    return lambda tree, budget: tree.select(budget, min_chance=min_chance)


def simulation(schedule: tuple[Action, ...], sampling: SamplingParams, width: int) -> Simulation:
    drafts = tuple(production_draft(q, width=width, sampling=sampling) for q in DRAFTS)
    return Simulation(TARGET, drafts, schedule, 3, sampling)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("sampling", RULES, ids=lambda s: s.mode.value)
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_output_law_equals_target_where_the_likeliest_nodes_are_gone_below(
    schedule: tuple[Action, ...], sampling: SamplingParams, width: int
) -> None:
    assert simulation(schedule, sampling, width).deviation() < TOLERANCE


@pytest.mark.parametrize("min_chance", [0.0, 0.15, 0.4])
@pytest.mark.parametrize("sampling", RULES, ids=lambda s: s.mode.value)
@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_output_law_equals_target_whatever_chances_drafts_estimate(
    schedule: tuple[Action, ...], sampling: SamplingParams, min_chance: float
) -> None:
    run = simulation(schedule, sampling, width=2)
    run = replace(run, send=with_chances(), select=at_least(min_chance))
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize("sampling", RULES[:2], ids=lambda s: s.mode.value)
def test_enumeration_rejects_a_chance_that_knows_the_token_that_was_drawn(
    sampling: SamplingParams,
) -> None:
    run = simulation((Spread(0, 2), Spread(1, 2), Verify(2)), sampling, width=2)
    wrong = replace(run, send=with_chances(knows_token=True), select=at_least(0.3))
    assert wrong.deviation() > CLEARLY_WRONG


def by_the_token_that_was_drawn(node: TreeNode, survival: float) -> list[tuple[float, TreeNode]]:
    """Planted: below a draw of token 1 one goes on at once, below others last."""
    drawn = {draw.token: 0.95 if draw.token == 1 else 0.05 for draw in node.draws}
    chances = [(max(c.chance, drawn.get(c.token, 0.0)), c) for c in node.children.values()]
    return sorted(((survival * x, c) for x, c in chances), key=lambda pair: -pair[0])


def test_enumeration_rejects_a_tree_that_grows_by_what_was_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What else is there to verify then tells which token it was, before its draw is taken."""
    run = simulation((Spread(0, 2), Verify(2)), REJECTION, width=2)
    run = replace(run, send=listed_before_drawn)
    assert run.deviation() < TOLERANCE
    monkeypatch.setattr(frontier, "_ranked", by_the_token_that_was_drawn)
    assert run.deviation() > CLEARLY_WRONG


def listed_before_drawn(chunk: Chunk) -> Chunk:
    """Of a budget of two nothing is left for the draw where the LISTED token has a child."""
    chances = {NodeKind.LISTED: 0.9, NodeKind.SAMPLED: 0.4}
    return replace(chunk, nodes=tuple(replace(n, chance=chances[n.kind]) for n in chunk.nodes))


def chain(number: int, count: int) -> Spread:
    """What a deployment asks of drafts that draw: a path each, and no word of the others."""
    return Spread(number, count, DraftPart.CHAIN, is_alone=True)


CHAINS: dict[str, tuple[Action, ...]] = {
    "one-after-the-other": (chain(0, 2), chain(1, 2), Verify(3)),
    "in-turns": (chain(0, 1), chain(1, 1), chain(0, 1), chain(1, 2), Verify(3)),
    "carried-over": (chain(0, 2), Verify(1), chain(1, 2), Verify(2)),
    "opened-again": (chain(0, 2), Reopen(0), chain(0, 2), chain(1, 1), Verify(3)),
}


@pytest.mark.parametrize("min_chance", [0.0, 0.15, 0.4], ids=lambda x: f"verified-from-{x}")
@pytest.mark.parametrize("least_ahead", [0.0, 0.3], ids=lambda x: f"drafted-from-{x}")
@pytest.mark.parametrize("sampling", RULES[:2], ids=lambda s: s.mode.value)
@pytest.mark.parametrize("schedule", CHAINS.values(), ids=CHAINS)
def test_output_law_equals_target_where_drafts_go_down_a_path_each(
    schedule: tuple[Action, ...], sampling: SamplingParams, least_ahead: float, min_chance: float
) -> None:
    planned = tuple(
        replace(action, min_chance=least_ahead) if isinstance(action, Spread) else action
        for action in schedule
    )
    run = simulation(planned, sampling, width=2)
    run = replace(run, send=with_chances(), select=at_least(min_chance))
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize("sampling", RULES[:2], ids=lambda s: s.mode.value)
def test_output_law_equals_target_where_paths_reach_the_end_of_the_text(
    sampling: SamplingParams,
) -> None:
    """Below a drawn token that ends the text a draft has nothing to do."""
    run = simulation((chain(0, 3), chain(1, 2), Verify(3)), sampling, width=2)
    run = replace(run, history=History.of(sampling, (1,), ends=frozenset({1})))
    assert run.deviation() < TOLERANCE


SHARED: dict[str, tuple[Action, ...]] = {
    "branches-of-a-chain": (
        Spread(0, 2, DraftPart.CHAIN),
        Spread(1, 2, DraftPart.BRANCHES),
        Verify(3),
    ),
    "branches-on-the-way": (
        Spread(0, 1, DraftPart.CHAIN),
        Spread(1, 1, DraftPart.BRANCHES),
        Spread(0, 1, DraftPart.CHAIN),
        Verify(2),
    ),
    "branches-carried-over": (
        Spread(0, 2, DraftPart.CHAIN),
        Verify(1),
        Spread(1, 2, DraftPart.BRANCHES),
        Verify(3),
    ),
}


@pytest.mark.parametrize("min_chance", [0.0, 0.2])
@pytest.mark.parametrize("sampling", [SamplingParams(mode=AcceptanceMode.MATCH)])
@pytest.mark.parametrize("schedule", SHARED.values(), ids=SHARED)
def test_output_law_equals_target_where_branches_hang_off_nodes_of_another_draft(
    schedule: tuple[Action, ...], sampling: SamplingParams, min_chance: float
) -> None:
    run = simulation(schedule, sampling, width=2)
    run = replace(run, send=with_chances(), select=at_least(min_chance))
    assert run.deviation() < TOLERANCE


SURE_OF_ZERO = ByPrefix({(): (18, 1, 1)}, (1, 1, 1))
UNDECIDED = ByPrefix({(): (2.2, 2, 2), (0,): (98, 1, 1), (1,): (1, 98, 1), (2,): (1, 1, 0)})
LIKES_ONE = ByPrefix({(): (1, 8, 1)}, (1, 2, 3))


def apart(part: DraftPart, sampling: SamplingParams) -> Simulation:
    """Two drafts that know nothing of each other; the second one goes on below its draw first."""
    drafts = tuple(
        production_draft(q, width=2, sampling=sampling) for q in (SURE_OF_ZERO, UNDECIDED)
    )
    schedule = (Spread(0, 1, part, is_alone=True), Spread(1, 3, part, is_alone=True), Verify(3))
    return Simulation(LIKES_ONE, drafts, schedule, 3, sampling)


@pytest.mark.parametrize("sampling", RULES[:2], ids=lambda s: s.mode.value)
def test_enumeration_rejects_trees_of_drafts_that_do_not_know_each_other(
    sampling: SamplingParams,
) -> None:
    """Planted: a part that no draft has that draws.

    To its own draft the second draw weighs more than token 0, to the verifier less: the first draw
    is as unlikely as it is, and both drafts like token 0. So there is something below token 0 that
    takes the draw's place, if what the draw turned out to be was no good place to go on.
    """
    assert apart(DraftPart.CHAIN, sampling).deviation() < TOLERANCE
    assert apart(DraftPart.TREE, sampling).deviation() > CLEARLY_WRONG


@pytest.mark.parametrize("sampling", RULES[:2], ids=lambda s: s.mode.value)
def test_enumeration_rejects_paths_whose_chances_know_what_was_drawn(
    sampling: SamplingParams,
) -> None:
    """Planted: with a least chance at the verifier, only likelier tokens are verified."""
    run = simulation((chain(0, 2), chain(1, 2), Verify(3)), sampling, width=2)
    run = replace(run, select=at_least(0.3))
    assert replace(run, send=with_chances()).deviation() < TOLERANCE
    assert replace(run, send=with_chances(knows_token=True)).deviation() > CLEARLY_WRONG


def fewer_below_token_one(tree: TokenTree, budget: int) -> Subtree:
    """Planted: a budget that knows what was drawn first."""
    is_one = bool(tree.root.draws) and tree.root.draws[0].token == 1
    return tree.select(budget - 2 if is_one else budget)


@pytest.mark.parametrize("sampling", RULES[:2], ids=lambda s: s.mode.value)
def test_enumeration_rejects_a_budget_that_knows_what_was_drawn(sampling: SamplingParams) -> None:
    run = simulation((chain(0, 2), chain(1, 1), Verify(3)), sampling, width=2)
    assert run.deviation() < TOLERANCE
    assert replace(run, select=fewer_below_token_one).deviation() > CLEARLY_WRONG
