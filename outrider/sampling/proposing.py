"""What a draft proposes at a node, given its logits: the counterpart of the acceptance rules."""

from dataclasses import dataclass

import torch
from torch import Tensor

from outrider.sampling.history import NO_HISTORY, History
from outrider.sampling.noise import DraftNoise, Stream
from outrider.sampling.processing import process
from outrider.sampling.warping import warp
from outrider.types import AcceptanceMode, NodeKind, SamplingParams


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposed child: `q` is its probability under the draft's warped distribution."""

    token: int
    q: float
    kind: NodeKind


@dataclass(frozen=True, slots=True)
class Proposal:
    """Children to add at a node, the row that SAMPLED ones were drawn from, and where to go on.

    `going_on` is the index of the child below which drafting continues; it is chosen without a look
    at the sampled token.
    """

    candidates: tuple[Candidate, ...] = ()
    row_ids: tuple[int, ...] = ()
    row_probs: tuple[float, ...] = ()
    going_on: int = 0


def propose(
    logits: Tensor,
    sampling: SamplingParams,
    noise: DraftNoise,
    *,
    position: int,
    width: int,
    top_k: int,
    draw_index: int,
    history: History = NO_HISTORY,
) -> Proposal:
    """Up to `width` children for one node.

    logits: [vocab] in the target's ids, -inf for what the draft cannot say. `position` is the
    absolute position of the children, `draw_index` a number that no other draw of the session has,
    `history` the one at the node: the target's rows are conditioned on the same. Where nothing is
    left to say, nothing is proposed. Greedy and match list the most likely tokens, coupled the
    first tokens of the race that the target will run with the same noise, rejection and block list
    width - 1 tokens and sample one outside of them (Hu et al., ICLR 2025).
    """
    logits = process(logits, sampling, history)
    if not bool(torch.isfinite(logits.max())):
        return Proposal()
    if sampling.is_greedy:
        return _listed_top(logits.to(torch.float32).softmax(dim=-1), width)
    q = warp(logits, sampling)
    if sampling.mode is AcceptanceMode.MATCH:
        return _listed_top(q, width)
    if sampling.mode is AcceptanceMode.COUPLED:
        tokens = noise.rank(q, width, position, Stream.COUPLED)
        return Proposal(tuple(Candidate(t, float(q[t]), NodeKind.LISTED) for t in tokens))
    return _listed_and_sampled(q, noise, position, width, top_k, draw_index)


def _listed_top(q: Tensor, width: int) -> Proposal:
    top = q.topk(min(width, q.shape[-1]))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return Proposal(tuple(Candidate(t, prob, NodeKind.LISTED) for t, prob in pairs if prob > 0))


def _listed_and_sampled(
    q: Tensor, noise: DraftNoise, position: int, width: int, top_k: int, draw_index: int
) -> Proposal:
    """LISTED: the width - 1 most likely tokens; SAMPLED: one from the row of the others.

    The row is cut to its top_k tokens, renormalised and rounded to float32 *before* the draw: what
    is sent is what was sampled from (exactness, trap 1).
    """
    listed = _listed_top(q, width - 1).candidates if width > 1 else ()
    rest = q.clone()
    rest[[c.token for c in listed]] = 0.0
    top = rest.topk(min(top_k, rest.shape[-1]))
    keep = top.values > 0
    ids, weights = top.indices[keep], top.values[keep]
    if ids.numel() == 0:
        return Proposal(listed)
    row = (weights / weights.sum()).to(torch.float32)
    ids, row = ids[row > 0], row[row > 0]
    drawn = noise.choose(row.to(torch.float64), position, Stream.DRAFT, draw_index)
    token = int(ids[drawn])
    candidates = (*listed, Candidate(token, float(q[token]), NodeKind.SAMPLED))
    outside = 1.0 - sum(c.q for c in listed)
    going_on = 0 if listed and listed[0].q >= outside else len(listed)
    return Proposal(candidates, tuple(ids.tolist()), tuple(row.tolist()), going_on)
