"""No random number decides two things, across both sides, all drafts and all rounds of an answer.

The enumeration gives every proposal and every acceptance noise of its own, so it cannot see a draw
that shares its number with another one: that law is biased although each step by itself is right.
"""

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

import draft_service.drafter
from outrider.sampling import accepting, proposing, rules
from outrider.sampling.noise import DraftNoise, Noise, Stream
from outrider.sampling.rules import Acceptance, RowDistribution
from outrider.tree import Subtree
from outrider.types import DRAFT_INDEX_SHIFT, AcceptanceMode, SamplingParams

from .answers import Answer, answer

REJECTION = SamplingParams(mode=AcceptanceMode.REJECTION)
BLOCK = SamplingParams(mode=AcceptanceMode.BLOCK)
MATCH = SamplingParams(mode=AcceptanceMode.MATCH)
COUPLED = SamplingParams(mode=AcceptanceMode.COUPLED)
GREEDY = SamplingParams(temperature=0)
SEEDS = range(4)

real_propose = proposing.propose


@pytest.fixture(params=[1, 2], ids=["narrow", "wide"])
def width(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=[1, 2], ids=["one-draft", "two-drafts"])
def drafts(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def answers(
    patch: pytest.MonkeyPatch, sampling: SamplingParams, drafts: int, width: int
) -> list[Answer]:
    return [answer(patch, sampling, seed, drafts=drafts, width=width) for seed in SEEDS]


def with_index(change: Callable[[int], int]) -> Callable[..., proposing.Proposal]:
    """The production proposal, but for the number of its draw."""

    def run(*given: Any, draw_index: int, **named: Any) -> proposing.Proposal:
        return real_propose(*given, draw_index=change(draw_index), **named)

    return run


class Elsewhere:
    """A draft's noise that draws from another stream than DRAFT, with index 0."""

    def __init__(self, noise: DraftNoise, stream: Stream) -> None:
        self._noise = noise
        self._stream = stream

    def choose(self, weights: Tensor, position: int, stream: Stream, index: int = 0) -> int:
        return self._noise.choose(weights, position, self._stream, 0)

    def race(
        self, weights: Tensor, count: int, position: int, stream: Stream, index: int = 0
    ) -> list[tuple[int, float]]:
        return self._noise.race(weights, count, position, stream, index)


def with_stream(stream: Stream) -> Callable[..., proposing.Proposal]:
    """The production proposal, drawn with `stream, 0` for `Stream.DRAFT, draw_index`."""

    def run(
        logits: Tensor, sampling: SamplingParams, noise: DraftNoise, **named: Any
    ) -> proposing.Proposal:
        return real_propose(logits, sampling, Elsewhere(noise, stream), **named)

    return run


WRONG_INDEX = {
    "always-0": lambda index: 0,
    "counter-without-the-draft": lambda index: index % (1 << DRAFT_INDEX_SHIFT),
    "draft-without-the-counter": lambda index: index >> DRAFT_INDEX_SHIFT,
}


@pytest.mark.parametrize("sampling", [REJECTION, BLOCK], ids=["rejection", "block"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_random_number_is_asked_for_twice(
    sampling: SamplingParams, seed: int, drafts: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert answer(monkeypatch, sampling, seed, drafts=drafts, width=width).ledger.reused() == {}


@pytest.mark.parametrize("sampling", [REJECTION, BLOCK], ids=["rejection", "block"])
def test_the_answers_hold_all_that_could_go_wrong(
    sampling: SamplingParams, drafts: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in answers(monkeypatch, sampling, drafts, width):
        assert min(run.happened.rounds, run.happened.accepted, run.happened.misses) >= 4
        assert run.happened.reopened + run.happened.resumed >= 2
        expected = {Stream.DRAFT, Stream.ACCEPT, Stream.RESIDUAL, Stream.BONUS}
        assert run.ledger.streams() == expected


def test_match_asks_for_no_random_number_twice(
    drafts: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in answers(monkeypatch, MATCH, drafts, width):
        assert run.ledger.reused() == {}
        assert run.ledger.streams() == {Stream.MATCH}


def test_coupled_shares_its_own_stream_on_purpose_and_no_other(
    drafts: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in answers(monkeypatch, COUPLED, drafts, width):
        assert run.ledger.streams() == {Stream.COUPLED}
        assert any(len(set(users)) > 1 for users in run.ledger.reused().values())
        assert all(users.count("target") <= 1 for users in run.ledger.users.values())


def test_greedy_asks_for_no_random_number(
    drafts: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any(run.ledger.users for run in answers(monkeypatch, GREEDY, drafts, width))


@pytest.mark.parametrize("change", WRONG_INDEX.values(), ids=WRONG_INDEX)
def test_check_rejects_draws_that_share_their_index(
    change: Callable[[int], int], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_service.drafter, "propose", with_index(change))
    runs = answers(monkeypatch, REJECTION, 2, width)
    assert all(run.ledger.reused() for run in runs)


@pytest.mark.parametrize("stream", [Stream.RESIDUAL, Stream.BONUS, Stream.ACCEPT])
def test_check_rejects_draws_with_a_number_of_the_target(
    stream: Stream, drafts: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_service.drafter, "propose", with_stream(stream))
    for run in answers(monkeypatch, REJECTION, drafts, width):
        shared = [users for users in run.ledger.reused().values() if "target" in users]
        assert any(set(users) > {"target"} for users in shared)


class KeyedByPlace:
    """A target's noise whose acceptance numbers are keyed by the position of what they judge."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def uniform(self, position: int, index: int) -> float:
        return self._noise.uniform(position + index, 0)

    def choose(self, weights: Tensor, position: int, stream: Stream, index: int = 0) -> int:
        return self._noise.choose(weights, position, stream, index)


def block_keyed_by_place(
    subtree: Subtree, p: RowDistribution, noise: Noise, position: int
) -> Acceptance:
    return rules.block(subtree, p, KeyedByPlace(noise), position)


def test_check_rejects_a_block_whose_numbers_a_later_round_uses_again(
    drafts: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rejected stretch was judged at positions that the next rounds judge again."""
    monkeypatch.setattr(accepting, "block", block_keyed_by_place)
    runs = (answer(monkeypatch, BLOCK, seed, drafts=drafts, width=width) for seed in range(20))
    assert any(run.ledger.reused() for run in runs)


@pytest.mark.parametrize("sampling", [REJECTION, BLOCK], ids=["rejection", "block"])
def test_what_follows_a_broken_stream_asks_for_no_number_again(
    sampling: SamplingParams, drafts: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in SEEDS:
        run = answer(monkeypatch, sampling, seed, drafts=drafts, width=width, breaks=True)
        assert run.happened.broken >= 1
        assert run.ledger.reused() == {}


def test_check_rejects_a_seed_that_goes_on_behind_a_broken_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Drafts begin anew, and some draw numbers once more that had been looked at."""
    runs = (
        answer(
            monkeypatch,
            BLOCK,
            seed,
            drafts=2,
            width=2,
            breaks=True,
            seed_behind=lambda seed, delivered: seed,
        )
        for seed in range(40)
    )
    assert any(run.ledger.reused() for run in runs)
