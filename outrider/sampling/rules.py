"""The acceptance rules: which drafted tokens stand, and the target's own token after them.

p is the target's warped distribution at a row, q the sparse row that a SAMPLED token was really
drawn from. Random numbers come in as an argument, so tests enumerate every outcome of this code.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from outrider.errors import InvalidArgumentError
from outrider.sampling.noise import Noise, Stream
from outrider.tree import Draw, Subtree
from outrider.types import ProposalRow

RowDistribution = Callable[[int], Tensor]
"""p at a row of the subtree: float64 [vocab].

Raises InvalidArgumentError where the request leaves nothing to emit: a dead end. What was accepted
before it is emitted all the same, as it is without drafts; the next pass begins at the dead end.
"""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Rows of the accepted nodes, from the tip down, and the target's own token after them.

    `fresh`: the token was chosen after a look at what hangs below it, so all of that is spent.
    """

    path: tuple[int, ...]
    token: int
    fresh: bool = False


def follow(subtree: Subtree, decide: Callable[[int, int], int]) -> Acceptance:
    """The target decides every token; the tree only says how many decisions one pass covers.

    `decide(row, depth)` is the target's token at a row: argmax p (greedy), argmin e/p (coupled;
    Daliri et al., arXiv 2408.07978) or a draw from p (match; SpecInfer's naive sampling, SpecExec).
    """
    path: list[int] = []
    row = 0
    while True:
        try:
            token = decide(row, len(path))
        except InvalidArgumentError as dead_end:
            return _before(dead_end, subtree, path)
        child = subtree.children[row].get(token)
        if child is None:
            return Acceptance(tuple(path), token)
        path.append(child)
        row = child


def reject(subtree: Subtree, p: RowDistribution, noise: Noise, position: int) -> Acceptance:
    """Rejection over chains, trees and several drafts; exact for every q and every tree.

    At a node with residual r = p: SAMPLED children are tested in the order drawn, accepted with
    min(1, r(x)/q(x)) (Leviathan et al. 2023, section 2.3), each rejection leaving norm[r - q]+
    (recursive rejection: SpecInfer 2024; without replacement: Jeon et al. 2024). None accepted: a
    token drawn from r descends into a LISTED child of that token (greedy multi-draft, Hu et al.
    2025) or ends the round. `position` is the absolute position of the first token below the tip.
    """

    def decide(row: int, depth: int) -> int:
        draws = subtree.draws[row]
        numbers = (noise.uniform(position + depth, index) for index in count())
        accepted, residual = try_draws(draws, p(row), numbers)
        if accepted is not None:
            return accepted
        stream = Stream.RESIDUAL if draws else Stream.BONUS
        return noise.choose(residual, position + depth, stream)

    return follow(subtree, decide)


def block(subtree: Subtree, p: RowDistribution, noise: Noise, position: int) -> Acceptance:
    """Block verification (Sun et al., arXiv 2403.10444), over trees and several drafts.

    The chain of first draws x_1..x_g below a row is judged as a whole: the longest stretch
    x_1..x_tau with u_i < h_i stands (`chain_below`). tau < g: the next token has the law
    norm[P_tau p - q]+, against which the other draws of that row are tested one by one, as `reject`
    does; an accepted one begins a new chain. None accepted, or tau = g: a drawn token descends into
    a child of that token and begins a new chain there, or ends the round.

    P(tau >= i | x_1..x_i) = P_i wherever the chain ends, so it may end at any node, if only whether
    it does is not decided by what would come next; and a sibling that made it end is still a fair
    draw when its turn comes. What hangs below x_{tau + 1} was looked at and is spent: the residual
    gives it no probability, unless rounding left none at all (p = q), and then the token is taken
    and the round ends. `position` is the absolute position of the first token below the tip; all u
    are keyed by it, as a later round may judge the same positions again.
    """
    numbers = (noise.uniform(position, index) for index in count())
    path: list[int] = []
    row = 0
    while True:
        chain = chain_below(subtree, row, p)
        end = len(chain) - 1
        tau = next((i for i in range(end, 0, -1) if chain[i].stands(next(numbers))), 0)
        path += [link.row for link in chain[1 : tau + 1]]
        row, left = chain[tau].row, chain[tau].left
        depth = position + len(path)
        if left is None:
            try:
                token = noise.choose(p(row), depth, Stream.BONUS)
            except InvalidArgumentError as dead_end:
                return _before(dead_end, subtree, path)
        else:
            spent, *siblings = subtree.draws[row]
            token = spent.token
            mass = float(left.sum())
            if mass > 0:
                accepted, residual = try_draws(siblings, left / mass, numbers)
                token = (
                    noise.choose(residual, depth, Stream.RESIDUAL) if accepted is None else accepted
                )
            if token == spent.token:
                return Acceptance(tuple(path), token, fresh=True)
        child = subtree.children[row].get(token)
        if child is None:
            return Acceptance(tuple(path), token)
        path.append(child)
        row = child


def _before(dead_end: InvalidArgumentError, subtree: Subtree, path: list[int]) -> Acceptance:
    """What was accepted, the last of it as the round's own token; nothing was: the error."""
    if not path:
        raise dead_end
    return Acceptance(tuple(path[:-1]), subtree.nodes[path[-1] - 1].token)


@dataclass(frozen=True, slots=True)
class ChainRow:
    """A node of a chain: its row, P_i, and [P_i p - q]+ of the next draw's q; `left` is None where
    the chain ends.
    """

    row: int
    weight: float
    left: Tensor | None

    def stands(self, u: float) -> bool:
        """Whether u < h_i, without a division: h_i = S_i / (S_i + 1 - P_i) with S_i the sum of
        `left` (0/0: it stands), and P_i at the end (Sun et al., algorithm 2)."""
        if self.left is None:
            return accepts(u, 1.0, self.weight)
        mass = float(self.left.sum())
        scale = mass + 1.0 - self.weight
        return scale <= 0 or accepts(u, scale, mass)


def chain_below(subtree: Subtree, row: int, p: RowDistribution) -> list[ChainRow]:
    """The chain of first draws below a row, itself first: P_0 = 1, P_i = min(1, P_{i-1} p/q).

    Where P_i is 0 no longer stretch can stand, so nothing is read below: it may be forbidden. At a
    dead end the chain ends, too: whether a token is one does not depend on what was drawn below it.
    """
    chain: list[ChainRow] = []
    weight = 1.0
    while weight > 0 and subtree.draws[row]:
        draw = subtree.draws[row][0]
        try:
            weighted = weight * p(row)
        except InvalidArgumentError:
            break
        ids, q = row_without(draw.row, draw.gone)
        chain.append(ChainRow(row, weight, excess(weighted, ids, q)))
        weight = min(1.0, float(weighted[draw.token]) / probability(draw.token, ids, q))
        row = subtree.children[row][draw.token]
    return [*chain, ChainRow(row, weight, None)]


def try_draws(
    draws: Sequence[Draw], p: Tensor, numbers: Iterator[float]
) -> tuple[int | None, Tensor]:
    """The first accepted draw (None: none), and the residual left after the rejected ones.

    `numbers` are the acceptance numbers u, one for each test.
    """
    residual = p
    for draw in draws:
        ids, q = row_without(draw.row, draw.gone)
        r_token = float(residual[draw.token])
        if accepts(next(numbers), probability(draw.token, ids, q), r_token):
            return draw.token, residual
        left = residual_after(residual, ids, q)
        if left is None:
            return draw.token, residual
        residual = left
    return None, residual


def accepts(u: float, q: float, r: float) -> bool:
    """Whether a token drawn with probability q stands against r: u < r/q, without a division."""
    return u * q < r


def residual_after(r: Tensor, ids: Tensor, q: Tensor) -> Tensor | None:
    """norm[r - q]+ (Leviathan et al. 2023, section 2.3); None where it is empty: then r = q."""
    left = excess(r, ids, q)
    mass = left.sum()
    return left / mass if float(mass) > 0 else None


def excess(r: Tensor, ids: Tensor, q: Tensor) -> Tensor:
    """[r - q]+, not normalised."""
    left = r.clone()
    left[ids] -= q.to(r.device)
    return left.clamp_(min=0)


def probability(token: int, ids: Tensor, q: Tensor) -> float:
    """What a sparse row gives a token of its own."""
    return float(q[(ids == token).nonzero().flatten()[0]])


def row_without(row: ProposalRow, gone: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Ids and probabilities (float64) of a row without the tokens drawn from it before."""
    kept = [(i, prob) for i, prob in zip(row.ids, row.probs, strict=True) if i not in gone]
    ids = torch.tensor([i for i, _ in kept], dtype=torch.int64)
    q = torch.tensor([prob for _, prob in kept], dtype=torch.float64)
    return ids, q / q.sum()
