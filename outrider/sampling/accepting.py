"""One pass of the target turned into a decision, for whatever the request's sampling asks."""

import torch
from torch import Tensor

from outrider.errors import InternalError
from outrider.sampling.noise import Noise, Stream
from outrider.sampling.rules import Acceptance, follow, reject
from outrider.sampling.warping import warp
from outrider.tree import Subtree
from outrider.types import AcceptanceMode, SamplingParams


def accept(
    subtree: Subtree, logits: Tensor, sampling: SamplingParams, noise: Noise, position: int
) -> Acceptance:
    """Which nodes of `subtree` stand, and the target's own token after them.

    logits: [1 + len(subtree), vocab], row 0 the tip's. `position` is the absolute position of the
    first token below the tip; all random numbers are keyed by absolute positions.
    """
    if sampling.is_greedy:
        best = logits.argmax(dim=-1)
        if not bool(torch.isfinite(logits.gather(-1, best[:, None])).all()):
            raise InternalError("the target returned NaN logits; no token can be chosen from them")
        tokens = best.tolist()
        return follow(subtree, lambda row, _: int(tokens[row]))
    if sampling.mode is AcceptanceMode.REJECTION:
        return reject(subtree, lambda row: warp(logits[row], sampling), noise, position)
    stream = Stream.COUPLED if sampling.mode is AcceptanceMode.COUPLED else Stream.MATCH
    return follow(
        subtree,
        lambda row, depth: noise.choose(warp(logits[row], sampling), position + depth, stream),
    )
