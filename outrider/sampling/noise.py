"""Random numbers as a function of (seed, stream, position, index): never of batching or order.

Philox 4x64 (Salmon et al., SC 2011) as numpy implements it is counter-based: the same key and
counter give the same bits on every machine. Everything is drawn on the CPU, so a GPU sees the same
numbers.
"""

from enum import IntEnum
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Stream(IntEnum):
    """What a random number is used for; streams are independent of one another."""

    COUPLED = 0
    ACCEPT = 1
    RESIDUAL = 2
    BONUS = 3
    MATCH = 4
    DRAFT = 5


class Noise(Protocol):
    """Where the rules get their random numbers; tests replace it to enumerate every outcome."""

    def uniform(self, position: int, index: int) -> float:
        """The acceptance number u in [0, 1) of the index-th draw at a position."""
        ...

    def choose(self, weights: Tensor, position: int, stream: Stream, index: int = 0) -> int:
        """A token drawn in proportion to `weights` [vocab], which need not add up to one."""
        ...


class DraftNoise(Protocol):
    """Where a draft gets its random numbers; tests replace it to enumerate every outcome."""

    def choose(self, weights: Tensor, position: int, stream: Stream, index: int = 0) -> int:
        """A token drawn in proportion to `weights` [vocab], which need not add up to one."""
        ...

    def race(
        self, weights: Tensor, count: int, position: int, stream: Stream, index: int = 0
    ) -> list[tuple[int, float]]:
        """The first `count` tokens of the race whose winner `choose` returns, with their times."""
        ...


class PhiloxNoise:
    """The noise of one request.

    >>> PhiloxNoise(7).choose(torch.tensor([0.0, 1.0]), position=3, stream=Stream.BONUS)
    1
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def uniform(self, position: int, index: int) -> float:
        """The acceptance number u in [0, 1) of the index-th draw at a position."""
        return float(self._numbers(Stream.ACCEPT, position, index, 1)[0])

    def choose(self, weights: Tensor, position: int, stream: Stream, index: int = 0) -> int:
        """The winner of the exponential race: argmin e(x)/w(x); x with chance w(x)/sum(w)."""
        return self.rank(weights, 1, position, stream, index)[0]

    def rank(
        self, weights: Tensor, count: int, position: int, stream: Stream, index: int = 0
    ) -> list[int]:
        """The first `count` tokens of the exponential race, at most as many as have weight."""
        return [token for token, _ in self.race(weights, count, position, stream, index)]

    def race(
        self, weights: Tensor, count: int, position: int, stream: Stream, index: int = 0
    ) -> list[tuple[int, float]]:
        """As `rank`, each token with its time e(x)/w(x).

        With the same noise on both sides this is the coupling of Daliri, Musco and Suresh (arXiv
        2408.07978, algorithm 1): the draft's first token is the target's with probability at least
        (1 - TV) / (1 + TV).
        """
        numbers = self._numbers(stream, position, index, weights.shape[-1])
        return exponential_race(weights, torch.from_numpy(numbers), count)

    def _numbers(
        self, stream: Stream, position: int, index: int, count: int
    ) -> NDArray[np.float64]:
        """Multiples of 2^-53 in [0, 1), float64 [count]; element x depends on x, not on `count`."""
        generator = np.random.Philox(
            key=np.array([self.seed, int(stream)], dtype=np.uint64),
            counter=np.array([0, position, index, 0], dtype=np.uint64),
        )
        bits: NDArray[np.uint64] = generator.random_raw(count)
        numbers: NDArray[np.float64] = (bits >> np.uint64(11)) * 2.0**-53
        return numbers


def exponential_race(weights: Tensor, numbers: Tensor, count: int) -> list[tuple[int, float]]:
    """The `count` tokens with the smallest e(x)/w(x), e = -log(1 - number), in that order, each
    with that time.

    weights: [vocab], not negative, at least one positive; numbers: float64 [vocab] in [0, 1). Only
    tokens with weight run. As e >= number, a token whose number/w is above the count-th best e/w
    cannot be among the best, so the logarithm is taken for a handful only, and always on the CPU:
    devices may round it apart.
    """
    numbers = numbers.to(weights.device)
    has_weight = weights > 0
    if not bool(has_weight.all()):
        tokens = has_weight.nonzero().flatten()
        ranks = exponential_race(weights[tokens], numbers[tokens], count)
        return [(int(tokens[i]), time) for i, time in ranks]
    if len(weights) == 0:
        raise ValueError("every weight is zero; nothing can be drawn")
    weights = weights.to(torch.float64)
    numbers = numbers.clamp(min=2.0**-53)
    bounds = numbers / weights
    best = bounds.topk(min(count, len(weights)), largest=False).indices
    limit = (-torch.log1p(-numbers[best].cpu()) / weights[best].cpu()).max()
    is_candidate = bounds <= limit.to(bounds.device)
    is_candidate[best] = True
    candidates = is_candidate.nonzero().flatten()
    times = -torch.log1p(-numbers[candidates].cpu()) / weights[candidates].cpu()
    order = times.argsort(stable=True)[:count]
    return list(zip(candidates.cpu()[order].tolist(), times[order].tolist(), strict=True))
