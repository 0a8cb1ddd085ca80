"""Random numbers as a function of (seed, stream, position, index): never of batching or order.

Philox 4x64 (Salmon et al., SC 2011) as numpy implements it is counter-based: the same key and
counter give the same bits on every machine. Everything is drawn on the CPU, so a GPU sees the same
numbers.
"""

import math
import threading
from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_SMALLEST = 2.0**-53
"""Of the numbers, 0 left out: a time must not be 0."""

_LOOSE = 1 + 1e-12
"""Far more than two logarithms differ by rounding."""


_LARGE_VOCAB = 2048
"""From here on races on a CPU are faster one by one, in its caches, than together."""


_FEW = 4
"""So few races, too."""


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
        numbers = self._numbers(stream, position, index, weights.shape[-1])
        candidates = _candidates(_weights(weights), np.maximum(numbers, _SMALLEST), 1)
        if len(candidates) == 1:
            return int(candidates[0])
        return exponential_race(weights, torch.from_numpy(numbers), 1)[0][0]

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
        bits = _GENERATOR.bits((self.seed, stream), (0, position, index, 0), count)
        np.right_shift(bits, np.uint64(11), out=bits)
        numbers: NDArray[np.float64] = np.multiply(bits, 2.0**-53, dtype=np.float64)
        return numbers


class _Generator(threading.local):
    """One Philox for each thread: to set one back takes a tenth of what it takes to make one."""

    def __init__(self) -> None:
        self._key = np.zeros(2, dtype=np.uint64)
        self._counter = np.zeros(4, dtype=np.uint64)
        self._philox = np.random.Philox(key=self._key, counter=self._counter)
        self._start = self._philox.state
        self._start["state"] = {"key": self._key, "counter": self._counter}

    def bits(
        self, key: tuple[int, int], counter: tuple[int, int, int, int], count: int
    ) -> NDArray[np.uint64]:
        """The first `count` words of a Philox with that key and counter."""
        self._key[:] = key
        self._counter[:] = counter
        self._philox.state = self._start
        bits: NDArray[np.uint64] = self._philox.random_raw(count)
        return bits


_GENERATOR = _Generator()


def choose_all(
    weights: Tensor, noises: Sequence[Noise], positions: Sequence[int], stream: Stream
) -> list[int]:
    """What `choose` returns for each row, its noise and its position; weights: [rows, vocab]."""
    vocab = weights.shape[-1]
    each = list(zip(noises, positions, strict=True))
    philox = [(noise, at) for noise, at in each if isinstance(noise, PhiloxNoise)]
    is_faster_alone = vocab > _LARGE_VOCAB or len(each) < _FEW
    if (is_faster_alone and weights.device.type == "cpu") or len(philox) < len(each):
        return [n.choose(row, at, stream) for row, (n, at) in zip(weights, each, strict=True)]
    numbers = np.stack([noise._numbers(stream, at, 0, vocab) for noise, at in philox])
    return _winners(weights, torch.from_numpy(numbers))


def _winners(weights: Tensor, numbers: Tensor) -> list[int]:
    """The winner of `exponential_race` for each row. Both [rows, vocab], numbers on the CPU."""
    weights = weights.to(torch.float64)
    there = numbers.to(weights.device).clamp_(min=_SMALLEST)
    bounds = there / weights  # infinite without weight
    least, best = bounds.min(dim=-1, keepdim=True)
    if not bool(torch.isfinite(least).all()):
        pairs = zip(weights, numbers, strict=True)
        return [exponential_race(row, its, 1)[0][0] for row, its in pairs]
    limits = -torch.log1p(-there.gather(-1, best)) / weights.gather(-1, best) * _LOOSE
    rows, tokens = (bounds <= limits).nonzero(as_tuple=True)
    found = best.flatten().tolist()
    if len(rows) == len(found):
        return found
    times = (-torch.log1p(-there[rows, tokens].cpu()) / weights[rows, tokens].cpu()).tolist()
    fastest = [math.inf] * len(found)
    for row, token, time in zip(rows.tolist(), tokens.tolist(), times, strict=True):
        if time < fastest[row]:
            fastest[row], found[row] = time, token
    return found


def exponential_race(weights: Tensor, numbers: Tensor, count: int) -> list[tuple[int, float]]:
    """The `count` tokens with the smallest e(x)/w(x), e = -log(1 - number), in that order, each
    with that time.

    weights: [vocab], not negative, at least one positive; numbers: float64 [vocab] in [0, 1), on
    the CPU. Only tokens with weight run. As e >= number, a token whose number/w is above the
    count-th best e/w cannot be among the best, so only for a handful the logarithms are compared,
    always those of torch on the CPU: others may round apart.
    """
    # Not torch: for a small vocabulary that takes several times as long.
    w = _weights(weights)
    v = np.maximum(numbers.numpy(), _SMALLEST)
    tokens = _candidates(w, v, count)
    times = -torch.log1p(-torch.from_numpy(v[tokens])) / torch.from_numpy(w[tokens])
    ranks = sorted(zip(times.tolist(), tokens.tolist(), strict=True))[:count]
    return [(token, time) for time, token in ranks]


def _weights(weights: Tensor) -> NDArray[np.float64]:
    return weights.cpu().numpy().astype(np.float64, copy=False)


def _candidates(
    weights: NDArray[np.float64], numbers: NDArray[np.float64], count: int
) -> NDArray[np.int64]:
    """Rising tokens with weight, the `count` fastest among them, and few others."""
    with np.errstate(divide="ignore", over="ignore"):
        bounds = numbers / weights  # infinite without weight
        best: NDArray[np.int64] | slice = slice(None)
        if count == 1:
            fastest = int(bounds.argmin())
            best = slice(fastest, fastest + 1)
        elif count < len(bounds):
            best = bounds.argpartition(count - 1)[:count]
        limit = float((-np.log1p(-numbers[best]) / weights[best]).max()) * _LOOSE
    candidates = (bounds <= limit if limit < math.inf else weights > 0).nonzero()[0]
    if len(candidates) == 0:
        raise ValueError("every weight is zero; nothing can be drawn")
    return candidates
