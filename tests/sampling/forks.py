"""Random numbers that fork: every random outcome of the production code, with its probability.

The rules take their random numbers as an argument. `ForkingNoise` stands in for them, replays a
script of decisions and forks at the first one past its end; `outcomes` runs every script.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from torch import Tensor

from outrider.sampling.noise import DraftNoise, Noise, Stream

Outcome = TypeVar("Outcome")


class RandomNumbers(Noise, DraftNoise, Protocol):
    """What both sides need."""


class ForkingNoise:
    """A `Noise` that replays a script of decisions and takes the first outcome of any further one.

    `alternatives` are the scripts of the outcomes that were not taken. Asking twice for one random
    number is an error: it would decide two things at once.
    """

    def __init__(self, script: tuple[int, ...] = ()) -> None:
        self.probability = 1.0
        self.alternatives: list[tuple[int, ...]] = []
        self._script = script
        self._taken: list[int] = []
        self._used: set[tuple[int, ...]] = set()

    def uniform(self, position: int, index: int) -> float:
        """An interval that narrows with every comparison; it acts as the float it stands for."""
        self._use(int(Stream.ACCEPT), position, index)
        return cast(float, Uniform(self))

    def choose(self, weights: Tensor, position: int, stream: Stream, index: int = 0) -> int:
        """Forks over the support of `weights`."""
        self._use(int(stream), position, index)
        return self.decide((weights / weights.sum()).tolist())

    def race(
        self, weights: Tensor, count: int, position: int, stream: Stream, index: int = 0
    ) -> list[tuple[int, float]]:
        """Not enumerable: coupled proposals share the target's noise."""
        raise NotImplementedError("run coupled proposals with PhiloxNoise")

    def decide(self, chances: Sequence[float]) -> int:
        """The index of the outcome that the script wants, else the first possible one."""
        step = len(self._taken)
        if step < len(self._script):
            outcome = self._script[step]
        else:
            outcome, *others = (i for i, chance in enumerate(chances) if chance > 0)
            self.alternatives += [(*self._taken, other) for other in others]
        self._taken.append(outcome)
        self.probability *= chances[outcome]
        return outcome

    def _use(self, *key: int) -> None:
        if key in self._used:
            raise AssertionError(f"the random number {key} was used twice")
        self._used.add(key)


class Uniform:
    """u, uniform in [0, 1), known only through comparisons `u * q < r`; each forks."""

    def __init__(self, noise: ForkingNoise) -> None:
        self._noise = noise
        self._low = 0.0
        self._high = 1.0

    def __mul__(self, q: float) -> "ScaledUniform":
        return ScaledUniform(self, q)

    def is_below(self, bound: float) -> bool:
        """Forks with the chance that u < bound, given what is known of u."""
        bound = min(max(bound, self._low), self._high)
        below = (bound - self._low) / (self._high - self._low)
        if self._noise.decide((below, 1.0 - below)) == 0:
            self._high = bound
            return True
        self._low = bound
        return False


@dataclass(frozen=True, slots=True)
class ScaledUniform:
    """u * q."""

    u: Uniform
    q: float

    def __lt__(self, r: float) -> bool:
        return self.u.is_below(r / self.q)


def outcomes(run: Callable[[ForkingNoise], Outcome]) -> Iterator[tuple[float, Outcome]]:
    """Every outcome of `run` with its probability; equal outcomes are not merged."""
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        noise = ForkingNoise(scripts.pop())
        outcome = run(noise)
        scripts.extend(noise.alternatives)
        yield noise.probability, outcome
