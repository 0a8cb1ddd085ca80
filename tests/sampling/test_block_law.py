"""Block verification: the joint law of whole answers equals the target's, over all outcomes, and a
chain is never worth less than token by token.
"""

from dataclasses import replace
from itertools import product
from math import prod
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from torch import Tensor

from outrider.sampling.accepting import accept
from outrider.sampling.noise import DraftNoise, PhiloxNoise
from outrider.sampling.proposing import Proposal
from outrider.sampling.rules import block, row_without
from outrider.tree import Subtree, TokenTree
from outrider.types import Chunk, Node, NodeKind, ProposalRow, SamplingParams

from .enumeration import (
    BLOCK,
    REJECTION,
    Action,
    Deliver,
    Draft,
    MakeOnly,
    Prefix,
    Propose,
    Reopen,
    Simulation,
    Verify,
    drawing_draft,
    production_draft,
)
from .forks import outcomes
from .worlds import (
    Sender,
    Table,
    examples,
    random_schedule,
    random_sender,
    random_table,
    schedules,
    senders,
    tables,
)

TOLERANCE = 1e-9

TARGET = Table(((1, 2, 3), (4, 1, 0), (1, 1, 1), (0, 1, 2), (3, 2, 1)))
DRAFTS = (
    Table(((2, 2, 1), (1, 1, 0), (1, 5, 3))),
    Table(((1, 0, 4), (1, 3, 1))),
    Table(((1, 1, 1), (0, 2, 1))),
)
FIRST_ID = 1 << 24


def simulation(
    schedule: tuple[Action, ...], *drafts: Propose, length: int = 3, target: Table = TARGET
) -> Simulation:
    return Simulation(target, drafts, schedule, length, BLOCK)


def chain(tokens: Prefix, q: Table) -> Subtree:
    """A whole chain of draws, selected."""
    tree = TokenTree()
    for depth, token in enumerate(tokens):
        parent = FIRST_ID + depth - 1 if depth else 0
        row = q(tokens[:depth])
        node = Node(FIRST_ID + depth, parent, token, float(row[token]), NodeKind.SAMPLED)
        proposal = ProposalRow(parent, tuple(range(len(row))), tuple(row.tolist()))
        tree.grow(Chunk((node,), (proposal,)))
    return tree.select(len(tokens))


def mean_accepted(target: Table, q: Table, depth: int, sampling: SamplingParams) -> float:
    """Of one pass over a chain: exact, over all chains and all outcomes."""
    mean = 0.0
    for tokens in product(range(len(q(()))), repeat=depth):
        chances = [float(q(tokens[:place])[token]) for place, token in enumerate(tokens)]
        drawn = prod(chances)
        if drawn == 0:
            continue
        subtree = chain(tokens, q)
        logits = torch.stack([target(tokens[:place]).log() for place in range(depth + 1)])
        for chance, accepted in outcomes(
            lambda noise, subtree=subtree, logits=logits: accept(
                subtree, logits, sampling, noise, 0
            )
        ):
            mean += drawn * chance * len(accepted.path)
    return mean


@given(st.data(), st.integers(2, 4), st.integers(1, 3), st.integers(0, 4))
@examples(60)
def test_output_law_equals_target_for_any_chain(
    data: DataObject, vocab: int, depth: int, budget: int
) -> None:
    target, q = data.draw(tables(vocab, 2))
    run = simulation((Draft(0, depth), Verify(budget)), production_draft(q), target=target)
    assert run.deviation() < TOLERANCE


@given(st.data(), st.integers(3, 5), st.integers(2, 3), st.integers(0, 4))
@examples(40)
def test_output_law_equals_target_for_listed_tokens_and_one_sampled_outside(
    data: DataObject, vocab: int, width: int, budget: int
) -> None:
    target, q = data.draw(tables(vocab, 2))
    draft = production_draft(q, width=width)
    run = simulation((Draft(0, 2), Verify(budget)), draft, target=target, length=2)
    assert run.deviation() < TOLERANCE


@given(st.data(), st.integers(3, 4), st.integers(2, 3), st.integers(1, 4))
@examples(25)
def test_output_law_equals_target_for_siblings_drawn_without_replacement(
    data: DataObject, vocab: int, count: int, budget: int
) -> None:
    target, q = data.draw(tables(vocab, 2))
    draft = drawing_draft(q, count=count)
    run = simulation((Draft(0, 2), Verify(budget)), draft, target=target, length=2)
    assert run.deviation() < TOLERANCE


@given(st.data(), st.integers(2, 3), st.integers(2, 3), st.integers(1, 4))
@examples(30)
def test_output_law_equals_target_for_siblings_drawn_with_replacement(
    data: DataObject, vocab: int, count: int, budget: int
) -> None:
    target, q = data.draw(tables(vocab, 2))
    drafting: list[Action] = [Draft(number, 1) for number in range(count)]
    drafts = [production_draft(q)] * count
    run = simulation((*drafting, Verify(budget)), *drafts, target=target, length=2)
    assert run.deviation() < TOLERANCE


@given(st.data(), st.integers(2, 3), st.integers(1, 6))
@examples(30)
def test_output_law_equals_target_for_two_chains_of_different_q(
    data: DataObject, vocab: int, budget: int
) -> None:
    target, *qs = data.draw(tables(vocab, 3))
    schedule = (Draft(0, 2), Draft(1, 2), Verify(budget))
    run = simulation(schedule, *map(production_draft, qs), target=target)
    assert run.deviation() < TOLERANCE


@given(st.data(), st.integers(1, 5), st.booleans())
@examples(40)
def test_output_law_equals_target_when_a_sampled_token_is_listed_by_another_draft(
    data: DataObject, budget: int, is_listed_first: bool
) -> None:
    target, *qs = data.draw(tables(3, 3))
    drafts = (production_draft(qs[0]), production_draft(qs[1], width=2))
    order = (Draft(1, 2), Draft(0, 2)) if is_listed_first else (Draft(0, 2), Draft(1, 2))
    run = simulation((*order, Verify(budget)), *drafts, target=target, length=2)
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize("budget", range(1, 7))
def test_output_law_equals_target_when_a_chain_goes_on_with_what_its_sibling_drew(
    budget: int,
) -> None:
    """Draft 1 draws below its own first token: seen below draft 0's, it tells what draft 1 drew."""
    schedule = (Draft(0, 1), Draft(1, 3), Verify(budget))
    run = simulation(schedule, *map(production_draft, DRAFTS[:2]))
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize("budget", range(1, 6))
def test_output_law_equals_target_when_an_accepted_listed_token_has_a_chain_below(
    budget: int,
) -> None:
    """The top token is LISTED and drafted below; outside of it one is drawn, with a chain below."""

    def mixed(noise: DraftNoise, prefix: Prefix, draw_index: int) -> Proposal:
        proposal = production_draft(DRAFTS[len(prefix) % 2], width=2)(noise, prefix, draw_index)
        below = len(prefix) % len(proposal.candidates)
        chances = [1.0 if i == below else 0.5 for i in range(len(proposal.candidates))]
        pairs = zip(proposal.candidates, chances, strict=True)
        return replace(proposal, candidates=tuple(replace(c, chance=x) for c, x in pairs))

    listed_then_drawn = production_draft(DRAFTS[2])
    schedule = (Draft(0, 3), Draft(1, 2), Verify(budget))
    run = simulation(schedule, mixed, listed_then_drawn)
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize("budget", range(5))
@pytest.mark.parametrize("width", [1, 2, 3])
def test_output_law_equals_target_when_the_unverified_rest_is_carried_over(
    budget: int, width: int
) -> None:
    schedule = (Draft(0, 3), Verify(budget), Verify(budget), Draft(0, 2), Verify(budget))
    run = simulation(schedule, production_draft(DRAFTS[0], width=width), length=4)
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize("budget", [1, 2, 3])
@pytest.mark.parametrize("number", [1, 2])
def test_output_law_equals_target_when_chunks_arrive_after_the_round_they_were_made_for(
    budget: int, number: int
) -> None:
    schedule = (MakeOnly(0, 3), Draft(number, 1), Verify(budget), Deliver(0), Verify(budget))
    run = simulation(schedule, *map(production_draft, DRAFTS))
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize("budget", [1, 2, 4])
def test_output_law_equals_target_when_a_draft_is_opened_again(budget: int) -> None:
    schedule = (Draft(0, 2), Verify(budget), Reopen(0), Draft(0, 2), Verify(budget))
    assert simulation(schedule, production_draft(DRAFTS[0])).deviation() < TOLERANCE


@pytest.mark.parametrize("budget", [1, 2, 4])
def test_output_law_equals_target_when_a_draft_is_opened_again_where_it_drafted_before(
    budget: int,
) -> None:
    schedule = (Draft(0, 2), Reopen(0), Draft(0, 2), Verify(budget))
    assert simulation(schedule, production_draft(DRAFTS[0])).deviation() < TOLERANCE


@pytest.mark.parametrize("capacity", [1, 2, 3, 4])
def test_output_law_equals_target_when_the_tree_is_full(capacity: int) -> None:
    schedule = (Draft(0, 2), Draft(1, 2), Verify(4), Draft(0, 2), Verify(2))
    drafts = (drawing_draft(DRAFTS[0], count=2), production_draft(DRAFTS[1]))
    assert replace(simulation(schedule, *drafts), capacity=capacity).deviation() < TOLERANCE


@given(st.data(), st.integers(2, 3), st.integers(1, 3))
@examples(250)
def test_output_law_equals_target_for_any_drafts_and_any_schedule(
    data: DataObject, vocab: int, num_drafts: int
) -> None:
    depth = 2 if num_drafts < 3 else 1
    target, *qs = data.draw(tables(vocab, num_drafts + 1))
    drafts: list[Sender] = [data.draw(senders(q, vocab)) for q in qs]
    schedule = data.draw(schedules(num_drafts, depth))
    capacity = data.draw(st.sampled_from((4096, 3)))
    run = simulation(schedule, *(d.build() for d in drafts), target=target, length=2)
    assert replace(run, capacity=capacity).deviation() < TOLERANCE


@pytest.mark.parametrize("seed", range(70))
def test_output_law_equals_target_in_random_worlds(seed: int) -> None:
    random = Random(seed)
    vocab, num_drafts = random.choice(((2, 2), (2, 3), (3, 2)))
    drafts = [random_sender(random, vocab).build() for _ in range(num_drafts)]
    schedule = random_schedule(random, num_drafts, depth=2)
    run = simulation(schedule, *drafts, target=random_table(random, vocab))
    assert replace(run, capacity=random.choice((4096, 4096, 3))).deviation() < TOLERANCE


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 0.7, "top_k": 2},
        {"top_p": 0.8, "temperature": 1.3},
        {"min_p": 0.4},
        {"temperature": 1e-6},
        {"temperature": 0.0},
    ],
    ids=["top-k", "top-p", "min-p", "nearly-greedy", "greedy"],
)
def test_output_law_equals_the_warped_target(changes: dict[str, float]) -> None:
    sampling = replace(BLOCK, **changes)
    drafts = (
        production_draft(DRAFTS[0], sampling=sampling),
        production_draft(DRAFTS[1], sampling=sampling, width=2),
    )
    run = simulation((Draft(0, 2), Draft(1, 2), Verify(3)), *drafts)
    assert replace(run, sampling=sampling).deviation() < TOLERANCE


@given(st.data(), st.integers(2, 3), st.integers(1, 3))
@examples(60)
def test_a_chain_is_never_worth_less_than_token_by_token(
    data: DataObject, vocab: int, depth: int
) -> None:
    target, q = data.draw(tables(vocab, 2))
    one_by_one = mean_accepted(target, q, depth, REJECTION)
    assert mean_accepted(target, q, depth, BLOCK) >= one_by_one - 1e-12


def test_a_chain_is_worth_more_where_a_later_token_makes_up_for_an_earlier_one() -> None:
    """p = (1/3, 2/3), q = (2/3, 1/3): 10/9 tokens one by one, 11/9 as a block (Sun et al.)."""
    target, q = Table(((1, 2),)), Table(((2, 1),))
    assert mean_accepted(target, q, 2, REJECTION) == pytest.approx(10 / 9, abs=1e-9)
    assert mean_accepted(target, q, 2, BLOCK) == pytest.approx(11 / 9, abs=1e-9)


def test_nothing_is_read_below_a_token_that_the_target_forbids() -> None:
    subtree = chain((0, 1), Table(((1, 1),)))
    read: list[int] = []

    def p(row: int) -> Tensor:
        read.append(row)
        return torch.tensor([0.0, 1.0], dtype=torch.float64)

    assert block(subtree, p, PhiloxNoise(3), 0).path == ()
    assert read == [0]


@given(st.data(), st.integers(2, 3), st.integers(1, 3))
@examples(60)
def test_spent_nodes_are_never_descended_into_nor_left_over(
    data: DataObject, vocab: int, depth: int
) -> None:
    """The token that follows a rejected stretch is the rejected one by rounding alone."""
    target, q = data.draw(tables(vocab, 2))
    tokens = tuple(data.draw(st.integers(0, vocab - 1)) for _ in range(depth))
    if any(float(q(tokens[:place])[token]) == 0 for place, token in enumerate(tokens)):
        return
    subtree = chain(tokens, q)
    for chance, accepted in outcomes(
        lambda noise: block(subtree, lambda row: target(tokens[:row]), noise, 0)
    ):
        is_spent = len(accepted.path) < depth and accepted.token == tokens[len(accepted.path)]
        assert accepted.fresh == is_spent
        assert not accepted.fresh or chance < 1e-12


def test_where_rounding_leaves_no_residual_the_drawn_token_is_taken_and_what_follows_is_spent() -> (
    None
):
    subtree = chain((0, 1), Table(((1, 1),)))
    ids, q = row_without(subtree.draws[0][0].row, ())
    assert ids.tolist() == [0, 1]
    rows = (q * (1 - 1e-9), torch.tensor([1.0, 0.0], dtype=torch.float64), q)
    fresh = [
        a for _, a in outcomes(lambda noise: block(subtree, rows.__getitem__, noise, 0)) if a.fresh
    ]
    assert [(a.path, a.token) for a in fresh] == [((), 0)]
