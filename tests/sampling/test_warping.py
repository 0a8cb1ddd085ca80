"""Warping equals an obviously slow reference, in the documented order."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from outrider.errors import InternalError
from outrider.sampling.warping import warp
from outrider.types import SamplingParams

from .worlds import examples

LOGITS = st.lists(
    st.sampled_from((-math.inf, -3.0, -0.5, 0.0, 0.5, 0.5, 1.0, 2.5)), min_size=1, max_size=6
).filter(lambda logits: max(logits) > -math.inf)


def reference(logits: Sequence[float], sampling: SamplingParams) -> list[float]:
    """One token after the other, on plain lists."""
    vocab = range(len(logits))
    if sampling.temperature == 0:
        best = min(x for x in vocab if logits[x] == max(logits))
        return [float(x == best) for x in vocab]
    weights = [math.exp((logit - max(logits)) / sampling.temperature) for logit in logits]
    if 0 < sampling.top_k < len(logits):
        kth = sorted(logits, reverse=True)[sampling.top_k - 1]
        weights = [w if logit >= kth else 0.0 for w, logit in zip(weights, logits, strict=True)]
    probs = [w / sum(weights) for w in weights]
    if sampling.top_p < 1:
        kept: list[int] = []
        for x in sorted(vocab, key=lambda x: (-probs[x], x)):
            if sum(probs[y] for y in kept) < sampling.top_p:
                kept.append(x)
        probs = [probs[x] if x in kept else 0.0 for x in vocab]
        probs = [prob / sum(probs) for prob in probs]
    probs = [prob if prob >= sampling.min_p * max(probs) else 0.0 for prob in probs]
    return [prob / sum(probs) for prob in probs]


@given(
    LOGITS,
    st.sampled_from((1.0, 0.0, 1e-6, 0.7, 1.9)),
    st.integers(0, 7),
    st.sampled_from((1.0, 0.911, 0.553, 0.137, 1e-9)),
    st.sampled_from((0.0, 0.013, 0.177, 0.93)),
)
@examples(400)
def test_warping_equals_the_slow_reference(
    logits: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    sampling = SamplingParams(temperature, top_k, top_p, min_p)
    warped = warp(torch.tensor(logits, dtype=torch.float64), sampling).tolist()
    assert warped == pytest.approx(reference(logits, sampling), abs=1e-12)


def sorted_nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Top-p by sorting everything: by falling probability, equal ones by rising id."""
    ordered, ids = probs.sort(descending=True, stable=True)
    kept = ordered.masked_fill(ordered.cumsum(0) - ordered >= top_p, 0.0)
    nucleus = torch.zeros_like(probs).scatter_(0, ids, kept)
    return nucleus / nucleus.sum()


def edges(probs: Tensor) -> list[float]:
    """Masses at which the nucleus gets one token more, to the last bit."""
    ordered = probs.sort(descending=True, stable=True).values
    masses = (ordered.cumsum(0) - ordered).unique()
    picked = masses[:: max(1, len(masses) // 7)].tolist()
    both_sides = [*picked, *(math.nextafter(mass, 2.0) for mass in picked)]
    return [mass for mass in both_sides if 0 < mass < 1]


@given(
    st.integers(0, 2**32),
    st.sampled_from((1, 2, 3, 17, 300, 5000)),
    st.sampled_from((0.0, 0.1, 1.0, 3.0, 8.0, 60.0, 700.0)),
    st.sampled_from((1, 2, 7, 2**40)),
    st.floats(1e-9, 1, exclude_max=True),
)
@examples(150)
def test_top_p_equals_the_sort_of_the_whole_vocabulary_to_the_bit(
    seed: int, vocab: int, spread: float, steps: int, top_p: float
) -> None:
    """Few `steps` give many ties, a large `spread` probabilities that underflow."""
    noise = torch.randn(vocab, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    logits = (noise * steps).round() / steps * spread
    logits[torch.arange(vocab) % 5 == 4] = -torch.inf
    probs = warp(logits, SamplingParams())
    for threshold in (top_p, 1 - 1e-15, *edges(probs)):
        warped = warp(logits, SamplingParams(top_p=threshold))
        assert torch.equal(warped, sorted_nucleus(probs, threshold))


@pytest.mark.parametrize("spread", [1.0, 3.5])
@pytest.mark.parametrize("top_k", [0, 1000])
def test_top_p_over_a_large_vocabulary_equals_the_sort_of_it_to_the_bit(
    spread: float, top_k: int
) -> None:
    generator = torch.Generator().manual_seed(3)
    logits = (torch.randn(2, 262_144, generator=generator) * spread).to(torch.bfloat16)
    probs = warp(logits, SamplingParams(top_k=top_k))
    for top_p in (0.5, 0.95, 0.999):
        warped = warp(logits, SamplingParams(top_k=top_k, top_p=top_p))
        rows = [sorted_nucleus(row, top_p) for row in probs]
        assert torch.equal(warped, torch.stack(rows))


@given(st.lists(LOGITS.filter(lambda row: len(row) > 2), min_size=2, max_size=4))
@examples(50)
def test_rows_are_warped_independently_of_the_rows_beside_them(batch: list[list[float]]) -> None:
    rows = torch.tensor([row[:3] for row in batch if max(row[:3]) > -math.inf] or [[0.0, 1.0, 2.0]])
    sampling = SamplingParams(0.8, 2, 0.911, 0.013)
    alone = [warp(row, sampling).tolist() for row in rows]
    assert warp(rows, sampling).tolist() == alone


def test_unset_temperature_is_one() -> None:
    logits = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64)
    assert torch.equal(warp(logits, SamplingParams()), logits.softmax(dim=-1))


@pytest.mark.parametrize("temperature", [0.0, 1e-6, 1e-300, 5e-324])
def test_smallest_temperatures_give_the_most_likely_token(temperature: float) -> None:
    warped = warp(torch.tensor([-1.0, 3.0, 2.0]), SamplingParams(temperature=temperature))
    assert warped.tolist() == [0.0, 1.0, 0.0]


def test_ties_at_temperature_zero_go_to_the_lowest_id() -> None:
    warped = warp(torch.tensor([1.0, 3.0, 3.0]), SamplingParams(temperature=0))
    assert warped.tolist() == [0.0, 1.0, 0.0]


def test_ties_at_tiny_temperature_stay_ties() -> None:
    warped = warp(torch.tensor([1.0, 3.0, 3.0]), SamplingParams(temperature=1e-6))
    assert warped.tolist() == [0.0, 0.5, 0.5]


def test_tokens_tied_with_the_last_of_top_k_are_all_kept() -> None:
    warped = warp(torch.tensor([2.0, 1.0, 1.0, 0.0]), SamplingParams(top_k=2))
    assert (warped > 0).tolist() == [True, True, True, False]


def test_top_p_breaks_ties_by_the_lowest_id() -> None:
    warped = warp(torch.zeros(4), SamplingParams(top_p=0.4))
    assert warped.tolist() == [0.5, 0.5, 0.0, 0.0]


def test_temperature_comes_before_top_p() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2]).log()
    assert int((warp(logits, SamplingParams(temperature=0.2, top_p=0.7)) > 0).sum()) == 1


def test_top_k_comes_before_top_p() -> None:
    logits = torch.tensor([0.4, 0.3, 0.3]).log()
    assert int((warp(logits, SamplingParams(top_k=1, top_p=0.6)) > 0).sum()) == 1


def test_banned_tokens_keep_probability_zero() -> None:
    warped = warp(torch.tensor([-math.inf, 0.0, -math.inf]), SamplingParams(temperature=1.5))
    assert warped.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("row", [[math.nan, 0.0], [0.0, math.inf], [-math.inf, -math.inf]])
def test_rows_that_nothing_can_be_sampled_from_are_refused(
    row: list[float], temperature: float
) -> None:
    with pytest.raises(InternalError):
        warp(torch.tensor(row), SamplingParams(temperature=temperature))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_probabilities_are_float64_whatever_the_logits_are(dtype: torch.dtype) -> None:
    assert warp(torch.tensor([1.0, 2.0], dtype=dtype), SamplingParams()).dtype is torch.float64
