"""The acceptance rules: which drafted tokens stand, and the target's own token after them.

p is the target's warped distribution at a row, q the sparse row that a SAMPLED token was really
drawn from. Random numbers come in as an argument, so tests enumerate every outcome of this code.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.sampling.noise import Noise, Stream
from outrider.tree import Draw, Subtree
from outrider.types import ProposalRow

RowDistribution = Callable[[int], Tensor]
"""p at a row of the subtree: float64 [vocab]. Called at most once a row."""


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
        token = decide(row, len(path))
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
        accepted, residual = try_draws(draws, p(row), noise, position + depth)
        if accepted is not None:
            return accepted
        stream = Stream.RESIDUAL if draws else Stream.BONUS
        return noise.choose(residual, position + depth, stream)

    return follow(subtree, decide)


def try_draws(
    draws: Sequence[Draw], p: Tensor, noise: Noise, position: int
) -> tuple[int | None, Tensor]:
    """The first accepted draw (None: none), and the residual left after the rejected ones."""
    residual = p
    for index, draw in enumerate(draws):
        ids, q = row_without(draw.row, draw.gone)
        q_token = float(q[(ids == draw.token).nonzero().flatten()[0]])
        if accepts(noise.uniform(position, index), q_token, float(residual[draw.token])):
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
    left = r.clone()
    left[ids] -= q.to(r.device)
    left.clamp_(min=0)
    mass = left.sum()
    return left / mass if float(mass) > 0 else None


def row_without(row: ProposalRow, gone: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Ids and probabilities (float64) of a row without the tokens drawn from it before."""
    kept = [(i, prob) for i, prob in zip(row.ids, row.probs, strict=True) if i not in gone]
    ids = torch.tensor([i for i, _ in kept], dtype=torch.int64)
    q = torch.tensor([prob for _, prob in kept], dtype=torch.float64)
    return ids, q / q.sum()
