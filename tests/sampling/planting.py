"""Planted bugs: a scenario that is exact, and the same with one step or one function gone wrong.

A variant swaps one step of the simulation or one function; production code is never edited.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from torch import Tensor

from outrider.sampling import rules
from outrider.sampling.accepting import accept
from outrider.sampling.history import History
from outrider.sampling.noise import Noise, Stream
from outrider.sampling.rules import Acceptance
from outrider.tree import Subtree
from outrider.types import SamplingParams

from .enumeration import Simulation
from .forks import ForkingNoise

CLEARLY_WRONG = 1e-3
EXACT = 1e-9


@dataclass(frozen=True)
class Plant:
    """A scenario, the same with a bug in one of its steps, and functions to swap in it."""

    right: Simulation
    wrong: Simulation
    functions: tuple[tuple[object, str, Callable[..., object]], ...] = ()

    def error(self, patch: pytest.MonkeyPatch) -> float:
        """How far the bug takes the law from the target's: total variation."""
        expected = self.wrong.expected_law()
        for owner, name, function in self.functions:
            patch.setattr(owner, name, function)
        law = self.wrong.law()
        return sum(abs(law.get(t, 0.0) - expected.get(t, 0.0)) for t in {*law, *expected}) / 2


def swapped(
    right: Simulation, name: str, function: Callable[..., object], owner: object = rules
) -> Plant:
    """A bug in a function, by default one of `rules`."""
    return Plant(right, right, ((owner, name, function),))


class SharedUniform(ForkingNoise):
    """Gives all tests of a position one and the same u."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise
        self._shared: dict[int, float] = {}

    def uniform(self, position: int, index: int) -> float:
        if position not in self._shared:
            self._shared[position] = self._noise.uniform(position, 0)
        return self._shared[position]

    def choose(self, weights: Tensor, position: int, stream: Stream, index: int = 0) -> int:
        return self._noise.choose(weights, position, stream, index)


def accept_with_shared_u(
    subtree: Subtree,
    logits: Tensor,
    sampling: SamplingParams,
    noise: Noise,
    position: int,
    history: History,
) -> Acceptance:
    """The production step, but for one u where there should be several."""
    return accept(subtree, logits, sampling, SharedUniform(noise), position, history)
