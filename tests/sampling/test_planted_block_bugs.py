"""Wrong variants of block verification: the enumeration must reject each of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

import pytest
from torch import Tensor

from outrider.sampling import rules
from outrider.sampling.accepting import accept
from outrider.sampling.history import History
from outrider.sampling.noise import Noise, Stream
from outrider.sampling.processing import distribution
from outrider.sampling.rules import (
    Acceptance,
    ChainRow,
    RowDistribution,
    accepts,
    block,
    excess,
    probability,
    residual_after,
    row_without,
)
from outrider.tree import Subtree
from outrider.types import SamplingParams

from .enumeration import BLOCK, Draft, Simulation, Verify, drawing_draft, production_draft
from .planting import CLEARLY_WRONG, EXACT, Plant, accept_with_shared_u, swapped
from .worlds import Table

TARGET = Table(((1, 2, 3), (4, 1, 2), (1, 4, 2)))
Q = Table(((3, 2, 1), (1, 1, 3)))
OTHER_Q = Table(((1, 1, 4), (3, 2, 1)))

CHAIN = Simulation(TARGET, (production_draft(Q),), (Draft(0, 3), Verify(3)), 3, BLOCK)
SIBLINGS = Simulation(
    TARGET,
    (production_draft(Q), production_draft(OTHER_Q)),
    (Draft(0, 2), Draft(1, 1), Verify(4)),
    2,
    BLOCK,
)
WITHOUT_REPLACEMENT = Simulation(
    Table(((1, 2, 3, 4), (4, 1, 2, 3), (1, 4, 2, 2))),
    (drawing_draft(Table(((4, 3, 2, 1), (1, 1, 3, 4))), count=2),),
    (Draft(0, 1), Verify(4)),
    2,
    BLOCK,
)

real_chain_below = rules.chain_below

Relink = Callable[[ChainRow, Tensor, Tensor, Tensor], ChainRow]
"""A link of the chain made wrong, given p and the ids and numbers of q at its row."""


def relinked(relink: Relink) -> Plant:
    """Every link but the last goes through `relink`."""

    def wrong(subtree: Subtree, row: int, p: RowDistribution) -> list[ChainRow]:
        *links, last = real_chain_below(subtree, row, p)
        changed = []
        for link in links:
            draw = subtree.draws[link.row][0]
            changed.append(relink(link, p(link.row), *row_without(draw.row, draw.gone)))
        return [*changed, last]

    return swapped(CHAIN, "chain_below", wrong)


@dataclass(frozen=True, slots=True)
class Odd(ChainRow):
    """A link that stands with a chance of its own."""

    chance: float

    def stands(self, u: float) -> bool:
        """Whether u is below that chance."""
        return accepts(u, 1.0, self.chance)


def s_without_weight(link: ChainRow, p: Tensor, ids: Tensor, q: Tensor) -> ChainRow:
    """S = sum [p - q]+ in h; the residual is the right one."""
    mass = float(excess(p, ids, q).sum())
    scale = mass + 1 - link.weight
    return Odd(link.row, link.weight, link.left, mass / scale if scale > 0 else 1.0)


def h_without_denominator(link: ChainRow, p: Tensor, ids: Tensor, q: Tensor) -> ChainRow:
    """h = S."""
    assert link.left is not None
    return Odd(link.row, link.weight, link.left, float(link.left.sum()))


def h_is_weight(link: ChainRow, p: Tensor, ids: Tensor, q: Tensor) -> ChainRow:
    """h = P, as if every node were the last."""
    return Odd(link.row, link.weight, link.left, link.weight)


def residual_of_p(link: ChainRow, p: Tensor, ids: Tensor, q: Tensor) -> ChainRow:
    """norm[p - q]+ after a stretch that ends early; h is the right one."""
    assert link.left is not None
    mass = float(link.left.sum())
    scale = mass + 1 - link.weight
    chance = mass / scale if scale > 0 else 1.0
    return Odd(link.row, link.weight, excess(p, ids, q), chance)


def last_by_its_own_ratio(subtree: Subtree, row: int, p: RowDistribution) -> list[ChainRow]:
    """h_g = p/q of the last token instead of P_g."""
    *links, last = real_chain_below(subtree, row, p)
    if not links:
        return [last]
    draw = subtree.draws[links[-1].row][0]
    q = probability(draw.token, *row_without(draw.row, draw.gone))
    return [*links, replace(last, weight=min(1.0, float(p(links[-1].row)[draw.token]) / q))]


def with_prefix(
    length: Callable[[Subtree, list[ChainRow], Noise, int, RowDistribution], int],
) -> Plant:
    """Another choice of how much of the chain stands; the residual is block's."""

    def wrong(
        subtree: Subtree,
        logits: Tensor,
        sampling: SamplingParams,
        noise: Noise,
        position: int,
        history: History,
    ) -> Acceptance:
        def p(row: int) -> Tensor:
            return distribution(logits[row], sampling, history)

        chain = real_chain_below(subtree, 0, p)
        tau = length(subtree, chain, noise, position, p)
        path = tuple(link.row for link in chain[1 : tau + 1])
        left = chain[tau].left
        weights = p(chain[tau].row) if left is None or float(left.sum()) == 0 else left
        return Acceptance(path, noise.choose(weights, position + tau, Stream.RESIDUAL))

    return Plant(CHAIN, replace(CHAIN, accept=wrong))


def token_by_token(
    subtree: Subtree, chain: list[ChainRow], noise: Noise, position: int, p: RowDistribution
) -> int:
    """Each token against p/q, from the front."""
    for i, link in enumerate(chain[:-1]):
        draw = subtree.draws[link.row][0]
        q = probability(draw.token, *row_without(draw.row, draw.gone))
        if not accepts(noise.uniform(position, i), q, float(p(link.row)[draw.token])):
            return i
    return len(chain) - 1


def until_the_first_that_falls(
    subtree: Subtree, chain: list[ChainRow], noise: Noise, position: int, p: RowDistribution
) -> int:
    """The h are right, but one that does not stand ends the search from the front."""
    for i, link in enumerate(chain[1:], start=1):
        if not link.stands(noise.uniform(position, i)):
            return i - 1
    return len(chain) - 1


def spent_draw_tested_again(
    subtree: Subtree, p: RowDistribution, noise: Noise, position: int
) -> Acceptance:
    """After a rejected stretch the draw that was looked at is tested once more, and its q taken off
    a second time."""
    chain = real_chain_below(subtree, 0, p)
    numbers = (noise.uniform(position, index) for index in count())
    end = len(chain) - 1
    tau = next((i for i in range(end, 0, -1) if chain[i].stands(next(numbers))), 0)
    path = tuple(link.row for link in chain[1 : tau + 1])
    row, left = chain[tau].row, chain[tau].left
    if left is None:
        return Acceptance(path, noise.choose(p(row), position + tau, Stream.BONUS))
    residual = left / left.sum()
    for draw in subtree.draws[row]:
        again = residual_after(residual, *row_without(draw.row, draw.gone))
        residual = residual if again is None else again
    return Acceptance(path, noise.choose(residual, position + tau, Stream.RESIDUAL))


def rounded(
    subtree: Subtree,
    logits: Tensor,
    sampling: SamplingParams,
    noise: Noise,
    position: int,
    history: History,
) -> Acceptance:
    """The production rule, with p of the first token rounded down by a fifth: where p = q that
    leaves no residual, as it happens with a chance of 2^-53 or so otherwise."""

    def p(row: int) -> Tensor:
        exact = distribution(logits[row], sampling, history)
        return exact * 0.8 if position + row == 0 else exact

    return block(subtree, p, noise, position)


def rounded_but_never_fresh(
    subtree: Subtree,
    logits: Tensor,
    sampling: SamplingParams,
    noise: Noise,
    position: int,
    history: History,
) -> Acceptance:
    """What was looked at stays in the tree."""
    acceptance = rounded(subtree, logits, sampling, noise, position, history)
    return replace(acceptance, fresh=False)


def weight_beyond_one(first: float, second: float) -> float:
    """P = P p/q, not cut at 1."""
    return second


DYADIC = Table(((2, 1, 1), (1, 1, 2)))
EQUAL_AT_FIRST = replace(
    CHAIN,
    target=lambda prefix: TARGET(prefix) if prefix else DYADIC(prefix),
    drafts=(production_draft(DYADIC),),
    schedule=(Draft(0, 3), Verify(3), Verify(1)),
    accept=rounded,
)

PLANTS = {
    "s-without-the-weight": relinked(s_without_weight),
    "h-without-denominator": relinked(h_without_denominator),
    "h-is-the-weight": relinked(h_is_weight),
    "residual-of-p-not-of-weighted-p": relinked(residual_of_p),
    "weight-not-cut-at-one": swapped(CHAIN, "min", weight_beyond_one),
    "last-token-by-its-own-ratio": swapped(CHAIN, "chain_below", last_by_its_own_ratio),
    "token-by-token-with-block-s-residual": with_prefix(token_by_token),
    "first-that-falls-ends-the-stretch": with_prefix(until_the_first_that_falls),
    "one-u-for-the-whole-chain": Plant(CHAIN, replace(CHAIN, accept=accept_with_shared_u)),
    "siblings-against-p": swapped(
        SIBLINGS, "try_draws", lambda draws, p, numbers: (draws[0].token if draws else None, p)
    ),
    "earlier-draws-not-taken-out-of-q": swapped(
        WITHOUT_REPLACEMENT, "row_without", lambda row, gone: row_without(row, ())
    ),
    "spent-draw-tested-again": Plant(
        CHAIN,
        replace(
            CHAIN,
            accept=lambda subtree, logits, sampling, noise, position, history: (
                spent_draw_tested_again(
                    subtree,
                    lambda row: distribution(logits[row], sampling, history),
                    noise,
                    position,
                )
            ),
        ),
    ),
    "spent-nodes-verified-again": Plant(
        EQUAL_AT_FIRST, replace(EQUAL_AT_FIRST, accept=rounded_but_never_fresh)
    ),
}


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_enumeration_rejects_the_bug(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "min", min, raising=False)
    assert plant.error(monkeypatch) > CLEARLY_WRONG


@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_the_same_scenario_without_the_bug_is_exact(plant: Plant) -> None:
    assert plant.right.deviation() < EXACT


def test_the_scenario_of_spent_nodes_has_them() -> None:
    fresh = 0

    def counted(
        subtree: Subtree,
        logits: Tensor,
        sampling: SamplingParams,
        noise: Noise,
        position: int,
        history: History,
    ) -> Acceptance:
        nonlocal fresh
        acceptance = rounded(subtree, logits, sampling, noise, position, history)
        fresh += acceptance.fresh
        return acceptance

    replace(EQUAL_AT_FIRST, accept=counted).law()
    assert fresh > 0
    production = replace(EQUAL_AT_FIRST, accept=accept)
    assert production.deviation() < EXACT
