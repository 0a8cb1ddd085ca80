"""How likely the target takes what a draft proposes, learned from what it took before.

Pure: evidence and outcomes in, chances out. One instance serves all sessions of a draft, because
how much a draft resembles a target has little to do with whose text it is. What is learned comes
from committed tokens only, so no estimate knows anything of a token that is undecided.
"""

from bisect import bisect_right
from dataclasses import dataclass

from outrider.sampling.proposing import Candidate
from outrider.types import AcceptanceMode, NodeKind, SamplingParams

GUESS_WEIGHT = 4.0
"""A first guess counts as much as so many outcomes."""

MEMORY = 0.995
"""Weight that an outcome keeps with each later one of its cell: a cell remembers about 200."""

MOST_RANKS = 4
"""Later children of a proposal are counted as the last of these."""

HIGHEST = 0.999
"""No chance is certain: a chain of certainties would never end."""

LOWEST = 1e-6
"""On the wire 0 says that nothing was estimated, which for a drawn token counts as 0.8."""

_Q_EDGES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
_LAG_EDGES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.5)

Cell = tuple[str, int, int]
"""The kind of proposal, the child's place in it, and the range that its evidence lies in."""


@dataclass(slots=True)
class _Outcomes:
    tested: float = 0.0
    taken: float = 0.0


class Chances:
    """A table of outcomes: each cell blends the first guesses made in it with what came of them.

    >>> likely = Candidate(5, 0.9, NodeKind.LISTED, chance=0.9, evidence=0.9)
    >>> chances = Chances()
    >>> cell = cell_of(likely, 0, SamplingParams(temperature=0))
    >>> for _ in range(20):
    ...     chances.learn(cell, False)
    >>> chances.of(likely, cell) < 0.2
    True
    """

    def __init__(self) -> None:
        self._outcomes: dict[Cell, _Outcomes] = {}

    def of(self, candidate: Candidate, cell: Cell) -> float:
        """The chance that the target takes the candidate where it gets to its parent."""
        seen = self._outcomes.get(cell)
        if seen is None:
            return min(max(candidate.chance, LOWEST), HIGHEST)
        chance = (seen.taken + GUESS_WEIGHT * candidate.chance) / (seen.tested + GUESS_WEIGHT)
        return min(max(chance, LOWEST), HIGHEST)

    def learn(self, cell: Cell, is_taken: bool) -> None:
        """What became of a candidate whose parent was committed."""
        seen = self._outcomes.setdefault(cell, _Outcomes())
        seen.tested = seen.tested * MEMORY + 1
        seen.taken = seen.taken * MEMORY + (1 if is_taken else 0)


def cell_of(candidate: Candidate, rank: int, sampling: SamplingParams) -> Cell:
    """Where the outcomes of such candidates are counted."""
    if candidate.kind is NodeKind.SAMPLED:
        return "sampled", 0, bisect_right(_Q_EDGES, candidate.evidence)
    if sampling.is_greedy:
        return "greedy", min(rank, MOST_RANKS), bisect_right(_Q_EDGES, candidate.evidence)
    mode = sampling.mode.value
    edges = _LAG_EDGES if sampling.mode is AcceptanceMode.COUPLED else _Q_EDGES
    return mode, min(rank, MOST_RANKS), bisect_right(edges, candidate.evidence)
