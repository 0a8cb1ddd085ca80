"""Greedy, coupled and match: the target decides alone, so drafts change how fast, never what."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from outrider.sampling.noise import PhiloxNoise
from outrider.tree import Subtree, TokenTree
from outrider.types import AcceptanceMode, SamplingParams

from .enumeration import (
    Action,
    Deliver,
    Draft,
    MakeOnly,
    Prefix,
    Propose,
    Reopen,
    Simulation,
    Verify,
    listing_draft,
    production_draft,
)
from .worlds import Table, examples, random_schedule, random_sender, random_table, tables

COUPLED = SamplingParams(temperature=0.9, top_p=0.95)
GREEDY = SamplingParams(temperature=0)
MATCH = SamplingParams(mode=AcceptanceMode.MATCH)

SEEDS = (0, 1, 5, 2**63, 2**64 - 1)
LENGTH = 12

TARGET = Table(((1, 2, 3, 1), (3, 1, 1, 0), (0, 1, 4, 2), (2, 2, 1, 5), (1, 1, 1, 1)))
TABLES = (
    Table(((2, 2, 1, 1), (1, 1, 0, 2))),
    Table(((1, 0, 4, 1), (1, 3, 1, 1), (1, 1, 1, 1))),
    TARGET,
    Table(((0, 1, 0, 0),)),
)
WITHOUT_DRAFTS: tuple[Action, ...] = (Verify(0),)


PLANS: dict[str, tuple[tuple[int, ...], tuple[Action, ...]]] = {
    "one-draft": ((1,), (Draft(0, 4), Verify(4))),
    "one-wide-draft": ((3,), (Draft(0, 4), Verify(6))),
    "four-drafts": ((1, 2, 1, 2), (*(Draft(i, 3) for i in range(4)), Verify(8))),
    "tight-budget": ((2, 2), (Draft(0, 4), Draft(1, 3), Verify(1), Verify(2))),
    "late": ((1, 2), (MakeOnly(0, 4), Draft(1, 1), Verify(3), Deliver(0), Verify(2))),
    "dying": ((2, 1), (Draft(0, 5), Verify(2), Reopen(0), Draft(0, 1), Verify(2))),
    "two-drafts-of-the-target": ((1, 1), (Draft(0, 6), Draft(1, 6), Verify(6))),
}


def run(plan: tuple[tuple[int, ...], tuple[Action, ...]], sampling: SamplingParams) -> Simulation:
    widths, schedule = plan
    drafts: list[Propose] = [
        production_draft(table, width=width, sampling=sampling)
        for table, width in zip(TABLES, widths, strict=False)
    ]
    return Simulation(TARGET, tuple(drafts), schedule, LENGTH, sampling, select=TokenTree.select)


def alone(simulation: Simulation) -> Simulation:
    return replace(simulation, drafts=(), schedule=WITHOUT_DRAFTS)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_coupled_tokens_do_not_depend_on_the_drafts(
    plan: tuple[tuple[int, ...], tuple[Action, ...]], seed: int
) -> None:
    simulation = run(plan, COUPLED)
    assert simulation.tokens(PhiloxNoise(seed)) == alone(simulation).tokens(PhiloxNoise(seed))


def test_coupled_tokens_depend_on_the_seed() -> None:
    simulation = alone(run(PLANS["one-draft"], COUPLED))
    tokens = {simulation.tokens(PhiloxNoise(seed)) for seed in range(20)}
    assert len(tokens) > 15


def test_a_coupled_draft_that_equals_the_target_is_always_right() -> None:
    draft = production_draft(TARGET, sampling=COUPLED)
    rounds: list[int] = []

    def counted(tree: TokenTree, budget: int) -> Subtree:
        rounds.append(budget)
        return tree.select(budget)

    schedule = (Draft(0, 3), Verify(3))
    Simulation(TARGET, (draft,), schedule, LENGTH, COUPLED, select=counted).tokens(PhiloxNoise(4))
    assert len(rounds) == LENGTH // 4


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_greedy_tokens_do_not_depend_on_the_drafts(
    plan: tuple[tuple[int, ...], tuple[Action, ...]],
) -> None:
    expected: Prefix = ()
    while len(expected) < LENGTH:
        expected = (*expected, int(TARGET(expected).argmax()))
    assert run(plan, GREEDY).tokens(PhiloxNoise(0)) == expected


@pytest.mark.parametrize("mode", AcceptanceMode)
def test_greedy_tokens_do_not_depend_on_the_mode(mode: AcceptanceMode) -> None:
    greedy = run(PLANS["four-drafts"], GREEDY)
    other = run(PLANS["four-drafts"], replace(GREEDY, mode=mode))
    assert other.tokens(PhiloxNoise(0)) == greedy.tokens(PhiloxNoise(0))


@given(st.data(), st.integers(2, 4), st.integers(0, 4))
@examples(60)
def test_match_output_law_equals_target_for_listed_tokens(
    data: DataObject, vocab: int, budget: int
) -> None:
    target, q = data.draw(tables(vocab, 2))
    drafts = (
        production_draft(q, width=2, sampling=MATCH),
        listing_draft(lambda prefix: (len(prefix) % vocab,)),
    )
    schedule = (Draft(0, 2), Draft(1, 2), Verify(budget))
    assert Simulation(target, drafts, schedule, 3, MATCH).deviation() < 1e-9


@pytest.mark.parametrize("seed", range(30))
def test_match_output_law_equals_target_in_random_worlds(seed: int) -> None:
    random = Random(seed)
    drafts = tuple(random_sender(random, 2).build() for _ in range(2))
    schedule = random_schedule(random, 2, depth=2)
    run = Simulation(random_table(random, 2), drafts, schedule, 3, MATCH)
    assert run.deviation() < 1e-9
