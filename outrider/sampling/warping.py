"""Logits to the distribution that tokens are really drawn from, by one function on both sides.

The order is fixed: temperature, top-k, top-p, min-p, each on the renormalised result of the one
before.
"""

import torch
from torch import Tensor

from outrider.errors import InternalError
from outrider.types import SamplingParams

_BIN_SHIFT = 51
"""Cuts a float64 in [0, 1] to its exponent and one more bit: two bins for each factor of 2."""

_ROUNDING = 1e-12
"""Far more than sums of probabilities differ by their order, far less than any top_p differs."""


def warp(logits: Tensor, sampling: SamplingParams) -> Tensor:
    """Warped probabilities, float64, of the same shape [..., vocab] as `logits`.

    Temperature 0 gives the one-hot row of the most likely token (the lowest id among equals).
    Tokens tied with the k-th most likely one are all kept. Rows lie on the device of the logits, or
    on the CPU where the device has no float64. Raises InternalError for NaN or all -inf logits.
    """
    rows = _float64(logits)
    if sampling.is_greedy:
        best = rows.argmax(dim=-1, keepdim=True)
        _check_finite(rows.gather(-1, best))
        return torch.zeros_like(rows).scatter_(-1, best, 1.0)
    largest = rows.amax(dim=-1, keepdim=True)
    _check_finite(largest)
    rows = (rows - largest) / sampling.temperature  # no temperature is too small: the best stays 0
    if 0 < sampling.top_k < rows.shape[-1]:
        kth = rows.topk(sampling.top_k, dim=-1).values[..., -1:]
        rows = rows.masked_fill(rows < kth, -torch.inf)
    probs = rows.softmax(dim=-1)
    if sampling.top_p < 1:
        probs = _top_p(probs, sampling.top_p)
    if sampling.min_p > 0:
        threshold = sampling.min_p * probs.amax(dim=-1, keepdim=True)
        probs = _renormalised(probs.masked_fill(probs < threshold, 0.0))
    return probs


def _top_p(probs: Tensor, top_p: float) -> Tensor:
    """Nucleus sampling (Holtzman et al. 2020): the smallest set whose mass reaches top_p.

    Tokens are taken by falling probability, equal ones by rising id.
    """
    nucleus = torch.zeros(probs.shape, dtype=probs.dtype, device=probs.device)
    vocab = probs.shape[-1]
    for row, kept in zip(probs.reshape(-1, vocab), nucleus.view(-1, vocab), strict=True):
        ids = _most_likely(row, top_p)
        ordered, ranks = row[ids].sort(descending=True, stable=True)
        mass_before = ordered.cumsum(dim=-1) - ordered
        kept[ids[ranks]] = ordered.masked_fill(mass_before >= top_p, 0.0)
        kept /= kept.sum()  # here: a sum over all rows at once may round by how many there are
    return nucleus


def _most_likely(probs: Tensor, top_p: float) -> Tensor:
    """Rising ids of a prefix of the tokens by falling probability that has more mass than top_p,
    tokens of probability 0 left out: to sort a few is faster than to sort the vocabulary.

    The bits of floats that are not negative are ordered as the floats are, so a histogram of their
    leading bits gives the mass above any of its bins.
    """
    bins = probs.view(torch.int64) >> _BIN_SHIFT
    mass = torch.bincount(bins, weights=probs)
    mass_from = mass.flip(0).cumsum(0).flip(0)
    enough = int((mass_from > top_p + _ROUNDING).sum())  # bins 0 to enough - 1 have it above them
    return ((bins >= enough - 1) & (probs > 0)).nonzero().flatten()


def _renormalised(weights: Tensor) -> Tensor:
    return weights / weights.sum(dim=-1, keepdim=True)


def _float64(logits: Tensor) -> Tensor:
    if logits.device.type == "mps":
        logits = logits.cpu()
    return logits.to(torch.float64)


def _check_finite(largest: Tensor) -> None:
    if not bool(torch.isfinite(largest).all()):
        raise InternalError(
            "the model returned NaN or infinite logits; nothing can be sampled from them"
        )
