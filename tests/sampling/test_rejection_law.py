"""Rejection leaves the target's law as it is: proved by enumerating every outcome of whole runs."""

from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from outrider.sampling.noise import DraftNoise
from outrider.sampling.proposing import Candidate, Proposal
from outrider.types import NodeKind, SamplingParams

from .enumeration import (
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
    listing_draft,
    production_draft,
)
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

TARGET = Table(((1, 2, 3), (3, 1, 1), (0, 1, 4), (2, 2, 1)))
DRAFTS = (
    Table(((2, 2, 1), (1, 1, 0), (1, 5, 3))),
    Table(((1, 0, 4), (1, 3, 1))),
    Table(((1, 1, 1), (0, 2, 1))),
)

CORNERS = {
    "uniform": (1.0, 1.0, 1.0),
    "one-hot": (0.0, 1.0, 0.0),
    "other-one-hot": (0.0, 0.0, 1.0),
    "zero-in-front": (0.0, 1.0, 2.0),
    "zero-behind": (3.0, 1.0, 0.0),
    "tiny": (1.0, 1e-12, 2.0),
    "below-float32": (1.0, 1e-60, 0.3),
}


def simulation(
    schedule: tuple[Action, ...], *drafts: Propose, length: int = 3, target: Table = TARGET
) -> Simulation:
    return Simulation(target, drafts, schedule, length)


@given(st.data(), st.integers(2, 4), st.integers(1, 3), st.integers(1, 3))
@examples(60)
def test_output_law_equals_target_for_any_chain(
    data: DataObject, vocab: int, depth: int, budget: int
) -> None:
    target, q = data.draw(tables(vocab, 2))
    run = simulation((Draft(0, depth), Verify(budget)), production_draft(q), target=target)
    assert run.deviation() < TOLERANCE


@given(st.data(), st.integers(3, 5), st.integers(2, 3), st.integers(1, 4))
@examples(60)
def test_output_law_equals_target_for_listed_tokens_and_one_sampled_outside(
    data: DataObject, vocab: int, width: int, budget: int
) -> None:
    target, q = data.draw(tables(vocab, 2))
    draft = production_draft(q, width=width)
    run = simulation((Draft(0, 2), Verify(budget)), draft, target=target, length=2)
    assert run.deviation() < TOLERANCE


@given(st.data(), st.integers(3, 5), st.integers(2, 3), st.integers(1, 4))
@examples(40)
def test_output_law_equals_target_for_siblings_drawn_without_replacement(
    data: DataObject, vocab: int, count: int, budget: int
) -> None:
    target, q = data.draw(tables(vocab, 2))
    draft = drawing_draft(q, count=count)
    run = simulation((Draft(0, 2), Verify(budget)), draft, target=target, length=2)
    assert run.deviation() < TOLERANCE


@given(st.data(), st.integers(2, 3), st.integers(2, 3), st.integers(1, 4))
@examples(50)
def test_output_law_equals_target_for_siblings_drawn_with_replacement(
    data: DataObject, vocab: int, count: int, budget: int
) -> None:
    target, q = data.draw(tables(vocab, 2))
    drafts = [production_draft(q)] * count
    drafting: list[Action] = [Draft(number, 1) for number in range(count)]
    schedule = (*drafting, Verify(budget))
    run = simulation(schedule, *drafts, target=target, length=2)
    assert run.deviation() < TOLERANCE


@given(st.data(), st.integers(2, 3), st.integers(1, 6))
@examples(40)
def test_output_law_equals_target_for_two_drafts_of_different_q(
    data: DataObject, vocab: int, budget: int
) -> None:
    target, *qs = data.draw(tables(vocab, 3))
    schedule = (Draft(0, 2), Draft(1, 2), Verify(budget))
    run = simulation(schedule, *map(production_draft, qs), target=target)
    assert run.deviation() < TOLERANCE


@given(st.data(), st.integers(2, 3), st.integers(1, 3))
@examples(50)
def test_output_law_equals_target_for_three_drafts_of_different_q(
    data: DataObject, vocab: int, budget: int
) -> None:
    target, *qs = data.draw(tables(vocab, 4))
    schedule = (Draft(0, 1), Draft(1, 1), Draft(2, 1), Verify(budget))
    run = simulation(schedule, *map(production_draft, qs), target=target, length=2)
    assert run.deviation() < TOLERANCE


@given(st.data(), st.integers(1, 5), st.booleans())
@examples(50)
def test_output_law_equals_target_when_a_sampled_token_is_listed_by_another_draft(
    data: DataObject, budget: int, is_listed_first: bool
) -> None:
    target, *qs = data.draw(tables(3, 3))
    drafts = (production_draft(qs[0]), production_draft(qs[1], width=2))
    order = (Draft(1, 2), Draft(0, 2)) if is_listed_first else (Draft(0, 2), Draft(1, 2))
    run = simulation((*order, Verify(budget)), *drafts, target=target, length=2)
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize("budget", range(1, 6))
def test_descendants_of_a_draw_that_another_draft_listed_do_not_push_the_draw_out(
    budget: int,
) -> None:
    def sampled_then_listed(noise: DraftNoise, prefix: Prefix, draw_index: int) -> Proposal:
        if not prefix:
            return drawing_draft(Table(((1, 1),)), count=1)(noise, prefix, draw_index)
        return Proposal((Candidate(0, 0.9, NodeKind.LISTED),))

    listing = listing_draft(lambda prefix: () if prefix else (0,))
    target = Table(((1, 1), (3, 1), (1, 2)))
    schedule = (Draft(1, 1), Draft(0, 3), Verify(budget))
    run = simulation(schedule, sampled_then_listed, listing, target=target)
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize("budget", [1, 2, 3])
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
    run = simulation(schedule, production_draft(DRAFTS[0]))
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize("budget", [1, 2, 4])
def test_output_law_equals_target_when_a_draft_is_opened_again_where_it_drafted_before(
    budget: int,
) -> None:
    schedule = (Draft(0, 2), Reopen(0), Draft(0, 2), Verify(budget))
    run = simulation(schedule, production_draft(DRAFTS[0]))
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize("capacity", [1, 2, 3, 4])
def test_output_law_equals_target_when_the_tree_is_full(capacity: int) -> None:
    schedule = (Draft(0, 2), Draft(1, 2), Verify(4), Draft(0, 2), Verify(2))
    run = simulation(schedule, drawing_draft(DRAFTS[0], count=2), production_draft(DRAFTS[1]))
    assert replace(run, capacity=capacity, length=3).deviation() < TOLERANCE


@given(st.data(), st.integers(1, 3))
@examples(80)
def test_output_law_equals_target_when_q_is_cut_to_its_top_k(data: DataObject, top_k: int) -> None:
    target, *qs = data.draw(tables(4, 3))
    drafts = (production_draft(qs[0], top_k=top_k), production_draft(qs[1], top_k=top_k, width=2))
    run = simulation((Draft(0, 1), Draft(1, 1), Verify(3)), *drafts, target=target, length=2)
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize(("p", "q"), list(product(CORNERS, CORNERS)))
def test_output_law_equals_target_in_the_corners_of_the_simplex(p: str, q: str) -> None:
    target, table = Table((CORNERS[p], CORNERS["uniform"])), Table((CORNERS[q],))
    drafts = (
        production_draft(table),
        production_draft(table, width=2),
        drawing_draft(table, count=3),
    )
    schedule = (Draft(0, 1), Draft(1, 1), Draft(2, 1), Verify(6))
    run = simulation(schedule, *drafts, target=target, length=2)
    assert run.deviation() < TOLERANCE


@pytest.mark.parametrize(
    "sampling",
    [
        replace(REJECTION, temperature=0.7),
        replace(REJECTION, top_k=2),
        replace(REJECTION, top_p=0.8, temperature=1.3),
        replace(REJECTION, min_p=0.4),
        replace(REJECTION, temperature=1e-6),
        replace(REJECTION, temperature=0.0),
    ],
    ids=["temperature", "top-k", "top-p", "min-p", "nearly-greedy", "greedy"],
)
def test_output_law_equals_the_warped_target(sampling: SamplingParams) -> None:
    drafts = (
        production_draft(DRAFTS[0], sampling=sampling),
        production_draft(DRAFTS[1], sampling=sampling, width=2),
    )
    run = simulation((Draft(0, 2), Draft(1, 2), Verify(3)), *drafts)
    assert replace(run, sampling=sampling).deviation() < TOLERANCE


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


def test_enumerated_probabilities_add_up_to_one() -> None:
    run = simulation((Draft(0, 2), Verify(2)), production_draft(DRAFTS[0]))
    assert sum(run.law().values()) == pytest.approx(1.0, abs=1e-12)
