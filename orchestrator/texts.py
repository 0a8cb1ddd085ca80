"""Texts as a simulated draft meets them: what it guesses at each position, and which of its guesses
is the target's token. Recorded from a real pair, or drawn by what was measured of one. Pure.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.types import SamplingParams

_FAR = 512
"""A row of right guesses is not followed beyond this when its mean length is computed."""


@dataclass(frozen=True, slots=True)
class Guess:
    """What a draft says at one position: the first guesses at the chances of its candidates, with
    the evidence for them, and the rank of the target's token among them (None: not there).
    """

    chances: tuple[float, ...]
    evidence: tuple[float, ...]
    rank: int | None


class Text(Protocol):
    """What the target says, as far as a draft is concerned."""

    sampling: SamplingParams

    def guess(self, position: int) -> Guess:
        """At the position where the target's token is the `position`-th of the answer."""
        ...

    def elsewhere(self, number: int) -> Guess:
        """Below a wrong guess, where nothing is right; `number` tells such places apart."""
        ...


class Recorded:
    """The guesses of a real pair along one answer; beyond its end it begins again."""

    def __init__(self, sampling: SamplingParams, guesses: Sequence[Guess]) -> None:
        self.sampling = sampling
        self._guesses = tuple(guesses)

    def guess(self, position: int) -> Guess:
        """See Text."""
        return self._guesses[position % len(self._guesses)]

    def elsewhere(self, number: int) -> Guess:
        """See Text. Which of the guesses it is like is anybody's guess, but always the same."""
        return self._guesses[random.Random(number).randrange(len(self._guesses))]


@dataclass(frozen=True, slots=True)
class Profile:
    """How sure a draft was, and how often it was right: `outcomes[i][r]` counts the places where
    its first guess had a chance in the i-th of equal ranges and its guess of rank r was the
    target's token; the last entry of each row counts those where none was.
    """

    outcomes: tuple[tuple[int, ...], ...]

    def weights(self, found: float) -> tuple[tuple[float, ...], ...]:
        """`outcomes` as shares of all places, were the target's token guessed in `found` of them.

        What is scaled is only how often it was; how sure the draft is where it is right, and where
        it is wrong, stays.

        >>> Profile(((1, 1), (3, 1))).weights(0.5)
        ((0.125, 0.25), (0.375, 0.25))
        """
        rights = sum(sum(row[:-1]) for row in self.outcomes)
        wrongs = sum(row[-1] for row in self.outcomes)
        right, wrong = found / max(rights, 1), (1 - found) / max(wrongs, 1)
        return tuple((*(n * right for n in row[:-1]), row[-1] * wrong) for row in self.outcomes)


ONE_GUESS = Profile(((1, 1),))
"""One candidate at each place, of which the draft is always as sure as it is right on average."""


class Drawn:
    """Guesses of which one is right with chance `acceptance[i]` where that was so at the i places
    before it since the last miss; the last entry holds for all that follow. How sure the draft is
    of them, and which of them is right, is drawn by `profile`. A seed gives the luck.
    """

    def __init__(
        self, acceptance: Sequence[float], seed: int, profile: Profile | None = None
    ) -> None:
        self.sampling = SamplingParams(temperature=0)
        self._acceptance = tuple(acceptance)
        self._seed = seed
        self._luck = random.Random(seed)
        self._guesses: list[Guess] = []
        self._run = 0
        found = found_share(acceptance)
        self._weights = [row for row in (profile or ONE_GUESS).weights(found) if sum(row) > 0] or [
            (0.0, 1.0)
        ]
        self._chances = [tuple(w / sum(row) for w in row[:-1]) for row in self._weights]
        self._rights = [sum(row[:-1]) for row in self._weights]
        self._wrongs = [row[-1] for row in self._weights]

    def guess(self, position: int) -> Guess:
        """See Text."""
        while len(self._guesses) <= position:
            self._guesses.append(self._next())
        return self._guesses[position]

    def elsewhere(self, number: int) -> Guess:
        """See Text. The draft does not know that it is lost, so it is as sure as anywhere."""
        luck = random.Random(self._seed << 32 ^ number)
        return self._of(self._drawn([sum(row) for row in self._weights], luck), None)

    def _next(self) -> Guess:
        chance = self._acceptance[min(self._run, len(self._acceptance) - 1)]
        if self._luck.random() >= chance:
            self._run = 0
            return self._of(self._drawn(self._wrongs, self._luck), None)
        self._run += 1
        index = self._drawn(self._rights, self._luck)
        return self._of(index, self._drawn(self._weights[index][:-1], self._luck))

    def _of(self, index: int, rank: int | None) -> Guess:
        return Guess(self._chances[index], self._chances[index], rank)

    @staticmethod
    def _drawn(weights: Sequence[float], luck: random.Random) -> int:
        if not any(weights):  # it has to happen although it never did
            return luck.randrange(len(weights))
        return luck.choices(range(len(weights)), weights)[0]


def found_share(acceptance: Sequence[float]) -> float:
    """The share of places at which a guess is right, by its chance after 0, 1, 2, ... right ones.

    Between two misses lie as many right guesses as the chances to get so far add up to.

    >>> round(found_share((0.5,)), 6), round(found_share((0.5, 0.0)), 6)
    (0.5, 0.333333)
    """
    reached, length = 1.0, 0.0
    for index in range(_FAR):
        reached *= acceptance[min(index, len(acceptance) - 1)]
        length += reached
    return length / (length + 1)
