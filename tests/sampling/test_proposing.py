"""What a draft proposes: the right tokens in the right order, and the row they were drawn from."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from outrider.sampling import proposing
from outrider.sampling.noise import PhiloxNoise, Stream
from outrider.sampling.proposing import Proposal, propose, propose_listed
from outrider.sampling.warping import warp
from outrider.types import AcceptanceMode, NodeKind, SamplingParams

from .enumeration import REJECTION
from .forks import outcomes
from .worlds import examples, rows

COUPLED = SamplingParams()
MATCH = SamplingParams(mode=AcceptanceMode.MATCH)
GREEDY = SamplingParams(temperature=0)

LOGITS = torch.tensor([0.5, 2.0, -1.0, 1.5, 0.0])


def proposed(
    sampling: SamplingParams, width: int, logits: torch.Tensor = LOGITS, *, top_k: int = 64
) -> Proposal:
    return propose(
        logits, sampling, PhiloxNoise(11), position=4, width=width, top_k=top_k, draw_index=9
    )


def tokens(proposal: Proposal) -> list[int]:
    return [candidate.token for candidate in proposal.candidates]


def kinds(proposal: Proposal) -> list[NodeKind]:
    return [candidate.kind for candidate in proposal.candidates]


def every_proposal(weights: tuple[float, ...], width: int, top_k: int) -> list[Proposal]:
    logits = torch.tensor(weights, dtype=torch.float64).log()
    return [
        proposal
        for _, proposal in outcomes(
            lambda noise: propose(
                logits, REJECTION, noise, position=0, width=width, top_k=top_k, draw_index=0
            )
        )
    ]


def test_greedy_lists_the_most_likely_tokens() -> None:
    assert tokens(proposed(GREEDY, 3)) == [1, 3, 0]


def test_match_lists_the_most_likely_tokens() -> None:
    assert tokens(proposed(MATCH, 2)) == [1, 3]


def test_coupled_lists_the_first_tokens_of_the_race_that_the_target_runs() -> None:
    race = PhiloxNoise(11).rank(warp(LOGITS, COUPLED), 3, 4, Stream.COUPLED)
    assert tokens(proposed(COUPLED, 3)) == race


def test_only_rejection_samples() -> None:
    sampled = {
        sampling.mode
        for sampling in (GREEDY, MATCH, COUPLED, REJECTION)
        if NodeKind.SAMPLED in kinds(proposed(sampling, 2))
    }
    assert sampled == {AcceptanceMode.REJECTION}


def test_greedy_lists_even_in_rejection_mode() -> None:
    greedy = SamplingParams(temperature=0, mode=AcceptanceMode.REJECTION)
    assert kinds(proposed(greedy, 2)) == [NodeKind.LISTED, NodeKind.LISTED]


def test_rejection_lists_the_most_likely_tokens_and_samples_one() -> None:
    expected = [NodeKind.LISTED, NodeKind.LISTED, NodeKind.SAMPLED]
    assert kinds(proposed(REJECTION, 3)) == expected


@pytest.mark.parametrize(("lead", "likeliest"), [(3.0, NodeKind.LISTED), (0.1, NodeKind.SAMPLED)])
def test_a_draw_is_likelier_than_the_listed_token_unless_that_is_likelier_than_all_others(
    lead: float, likeliest: NodeKind
) -> None:
    proposal = proposed(REJECTION, 2, torch.tensor([0.0, lead, 0.0]))
    assert max(proposal.candidates, key=lambda c: c.chance).kind is likeliest


def test_a_row_without_any_allowed_token_proposes_nothing() -> None:
    assert proposed(REJECTION, 2, torch.full((4,), -torch.inf)) == Proposal()


def test_tokens_without_probability_are_not_listed() -> None:
    logits = torch.tensor([0.0, -torch.inf, -torch.inf])
    assert tokens(proposed(MATCH, 3, logits)) == [0]


@given(st.data(), st.integers(2, 5), st.integers(1, 4), st.integers(1, 5))
@examples(60)
def test_the_row_is_at_most_top_k_wide(
    data: DataObject, vocab: int, width: int, top_k: int
) -> None:
    proposals = every_proposal(data.draw(rows(vocab)), width, top_k)
    assert max(len(proposal.row_ids) for proposal in proposals) <= top_k


@given(st.data(), st.integers(2, 5), st.integers(1, 4), st.integers(1, 5))
@examples(60)
def test_the_row_holds_float32_numbers(
    data: DataObject, vocab: int, width: int, top_k: int
) -> None:
    probs = every_proposal(data.draw(rows(vocab)), width, top_k)[0].row_probs
    assert list(probs) == torch.tensor(probs, dtype=torch.float32).tolist()


@given(st.data(), st.integers(2, 5), st.integers(2, 4), st.integers(1, 5))
@examples(60)
def test_listed_tokens_are_not_in_the_row(
    data: DataObject, vocab: int, width: int, top_k: int
) -> None:
    proposal = every_proposal(data.draw(rows(vocab)), width, top_k)[0]
    listed = {c.token for c in proposal.candidates if c.kind is NodeKind.LISTED}
    assert listed.isdisjoint(proposal.row_ids)


@given(st.data(), st.integers(2, 5), st.integers(1, 4), st.integers(1, 5))
@examples(60)
def test_everything_but_the_sampled_token_is_the_same_in_every_outcome(
    data: DataObject, vocab: int, width: int, top_k: int
) -> None:
    proposals = every_proposal(data.draw(rows(vocab)), width, top_k)
    known_before = {
        (p.row_ids, p.row_probs, len(p.candidates), p.candidates[: width - 1])
        + ((p.candidates[-1].chance, p.candidates[-1].evidence) if p.candidates else ())
        for p in proposals
    }
    assert len(known_before) == 1


@given(st.data(), st.integers(2, 5), st.integers(1, 4), st.integers(1, 5))
@examples(60)
def test_the_sampled_token_has_the_law_of_the_row(
    data: DataObject, vocab: int, width: int, top_k: int
) -> None:
    weights = data.draw(rows(vocab))
    logits = torch.tensor(weights, dtype=torch.float64).log()
    law: dict[int, float] = {}
    row: dict[int, float] = {}
    for probability, proposal in outcomes(
        lambda noise: propose(
            logits, REJECTION, noise, position=0, width=width, top_k=top_k, draw_index=0
        )
    ):
        if proposal.row_ids:
            law[proposal.candidates[-1].token] = probability
            total = sum(proposal.row_probs)
            row = {
                token: prob / total
                for token, prob in zip(proposal.row_ids, proposal.row_probs, strict=True)
            }
    assert law == pytest.approx(row, abs=1e-12)


LISTING = [
    GREEDY,
    MATCH,
    COUPLED,
    SamplingParams(temperature=0.7, top_k=3, top_p=0.8, min_p=0.05),
    SamplingParams(temperature=0.7, top_k=3, top_p=0.8, min_p=0.05, mode=AcceptanceMode.MATCH),
]


@pytest.mark.parametrize("sampling", LISTING, ids=lambda s: f"{s.mode.value}-{s.temperature}")
@pytest.mark.parametrize("vocab", [2, 5, 64, 1000])
@pytest.mark.parametrize("width", [1, 3])
def test_rows_of_many_sessions_are_proposed_as_one_by_one_to_the_last_bit(
    sampling: SamplingParams, vocab: int, width: int
) -> None:
    logits = torch.randn(9, vocab, generator=torch.Generator().manual_seed(vocab)) * 3
    logits[1, : vocab // 2] = -torch.inf
    logits[2] = -torch.inf
    logits[3] = torch.nan
    logits[4] = logits[4].round()  # many are equal
    logits[5] = 0.0
    noises = [PhiloxNoise(seed) for seed in range(9)]
    positions = [7 * i for i in range(9)]
    together = propose_listed(logits, sampling, noises, positions=positions, width=width)
    for i, (row, noise) in enumerate(zip(logits, noises, strict=True)):
        alone = propose(
            row, sampling, noise, position=positions[i], width=width, top_k=64, draw_index=i
        )
        assert together[i] == alone
    assert [bool(proposal.candidates) for proposal in together] == [
        i not in (2, 3) for i in range(9)
    ]


@pytest.mark.parametrize("at_once", [2**22, 10000, 1])
@pytest.mark.parametrize("vocab", [1, 2, 4, 5, 64, 5000])
def test_coupled_rows_of_many_sessions_list_the_first_tokens_of_their_own_races(
    vocab: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proposing, "MOST_NUMBERS", at_once)
    logits = torch.randn(12, vocab, generator=torch.Generator().manual_seed(vocab)) * 6
    logits[0, 1:] = -torch.inf
    logits[1, : vocab // 2] = -torch.inf
    noises = [PhiloxNoise(100 + i) for i in range(12)]
    together = propose_listed(logits, COUPLED, noises, positions=range(12), width=3)
    for i, proposal in enumerate(together):
        q = warp(logits[i], COUPLED)
        assert tokens(proposal) == noises[i].rank(q, 3, i, Stream.COUPLED)
        assert [c.q for c in proposal.candidates] == [float(q[t]) for t in tokens(proposal)]
