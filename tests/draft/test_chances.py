"""What a draft learns about its own guesses: from outcomes, and never from an undecided token."""

from random import Random

import pytest

from draft_service.chances import HIGHEST, Chances, cell_of
from outrider.sampling.proposing import Candidate
from outrider.types import AcceptanceMode, NodeKind, SamplingParams

GREEDY = SamplingParams(temperature=0)
COUPLED = SamplingParams(temperature=1.0, mode=AcceptanceMode.COUPLED)
REJECTION = SamplingParams(temperature=1.0, mode=AcceptanceMode.REJECTION)


def guess(evidence: float, chance: float = 0.5) -> Candidate:
    return Candidate(3, 0.5, NodeKind.LISTED, chance, evidence)


def test_before_any_outcome_the_first_guess_counts() -> None:
    for chance in (0.01, 0.3, 0.9):
        candidate = guess(0.4, chance)
        assert Chances().of(candidate, cell_of(candidate, 0, GREEDY)) == chance


def test_nothing_is_impossible_for_no_chance_means_that_none_was_estimated() -> None:
    candidate = guess(0.4, 0.0)
    assert 0 < Chances().of(candidate, cell_of(candidate, 0, GREEDY)) < 1e-3


def test_nothing_is_certain() -> None:
    candidate = guess(1.0, 1.0)
    cell = cell_of(candidate, 0, GREEDY)
    chances = Chances()
    for _ in range(1000):
        chances.learn(cell, True)
    assert chances.of(candidate, cell) == HIGHEST < 1


@pytest.mark.parametrize("sampling", [GREEDY, COUPLED], ids=["greedy", "coupled"])
@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
def test_outcomes_outweigh_the_first_guess(sampling: SamplingParams, rate: float) -> None:
    random, chances = Random(7), Chances()
    candidate = guess(0.6, chance=0.5)
    cell = cell_of(candidate, 0, sampling)
    for _ in range(600):
        chances.learn(cell, random.random() < rate)
    assert chances.of(candidate, cell) == pytest.approx(rate, abs=0.08)


def test_what_is_no_longer_true_is_forgotten() -> None:
    chances = Chances()
    candidate = guess(0.6)
    cell = cell_of(candidate, 0, GREEDY)
    for _ in range(2000):
        chances.learn(cell, True)
    for _ in range(600):
        chances.learn(cell, False)
    assert chances.of(candidate, cell) < 0.1


def test_ranks_modes_and_evidence_are_learned_apart() -> None:
    cells = {
        cell_of(guess(evidence), rank, sampling)
        for evidence in (0.01, 0.55, 0.99)
        for rank in range(4)
        for sampling in (GREEDY, COUPLED, REJECTION)
    }
    assert len(cells) == 3 * 4 * 3


@pytest.mark.parametrize("sampling", [REJECTION, SamplingParams(mode=AcceptanceMode.BLOCK)])
def test_a_drawn_token_changes_neither_its_cell_nor_its_chance(sampling: SamplingParams) -> None:
    """Exactness, trap 2: what is verified must not depend on a token that was drawn."""
    chances = Chances()
    drawn = [Candidate(t, q, NodeKind.SAMPLED, 0.6, 0.7) for t, q in ((1, 0.01), (9, 0.99))]
    cells = {cell_of(candidate, rank, sampling) for candidate in drawn for rank in (0, 3)}
    assert len(cells) == 1
    chances.learn(next(iter(cells)), True)
    assert len({chances.of(candidate, next(iter(cells))) for candidate in drawn}) == 1
