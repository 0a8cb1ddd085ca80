"""What a draft proposes at a node, given its logits: the counterpart of the acceptance rules."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from outrider.sampling.history import NO_HISTORY, History
from outrider.sampling.noise import DraftNoise, Stream
from outrider.sampling.processing import process
from outrider.sampling.warping import warp
from outrider.types import AcceptanceMode, NodeKind, SamplingParams

RACE_STEEPNESS = 1.8
"""How fast the chance of a runner falls with the time that the draft's race took it."""

RIVALS = 4
"""So many of a race are looked at, however few are proposed."""

LONGEST_LEAD = 8.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proposed child: `q` is its probability under the draft's warped distribution.

    `chance` is a first guess at the chance that the target takes it where it gets here, made from
    `evidence`, by which the draft learns to guess better: q, or the logarithm of how much longer
    the race took it than the winner (the winner: the second than it). For a SAMPLED one both know
    nothing of its token.
    """

    token: int
    q: float
    kind: NodeKind
    chance: float = 0.0
    evidence: float = 0.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """Children to add at a node, and the row that SAMPLED ones were drawn from."""

    candidates: tuple[Candidate, ...] = ()
    row_ids: tuple[int, ...] = ()
    row_probs: tuple[float, ...] = ()

    @property
    def first(self) -> int:
        """Index of the most likely candidate, where a single path goes on; it is chosen without a
        look at a sampled token.
        """
        return max(range(len(self.candidates)), key=lambda i: self.candidates[i].chance)


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
        top = _listed_top(logits.to(torch.float32).softmax(dim=-1), width)
        return Proposal(tuple(replace(c, chance=_greedy_chance(c.q, i)) for i, c in enumerate(top)))
    q = warp(logits, sampling)
    if sampling.mode is AcceptanceMode.MATCH:
        return Proposal(_listed_top(q, width))
    if sampling.mode is AcceptanceMode.COUPLED:
        return _raced(q, noise.race(q, max(width + 1, RIVALS), position, Stream.COUPLED), width)
    return _listed_and_sampled(q, noise, position, width, top_k, draw_index)


def _raced(q: Tensor, race: list[tuple[int, float]], width: int) -> Proposal:
    """The first tokens of the race. The target's race has other weights, so a token that was close
    to winning here may win there: its chance falls with a power of its time (fitted to a real pair;
    the draft learns from there on).
    """
    best = max(race[0][1], 1e-300)
    lags = [min(math.log(max(time, 1e-300) / best), LONGEST_LEAD) for _, time in race]
    weights = [math.exp(-RACE_STEEPNESS * lag) for lag in lags]
    lead = lags[1] if len(lags) > 1 else LONGEST_LEAD
    return Proposal(
        tuple(
            Candidate(token, float(q[token]), NodeKind.LISTED, weight / sum(weights), lag or lead)
            for (token, _), weight, lag in list(zip(race, weights, lags, strict=True))[:width]
        )
    )


def _greedy_chance(q: float, rank: int) -> float:
    """Two models that are alike agree on the most likely token more often than it is drawn (fitted
    to a real pair; the draft learns from there on).
    """
    return q * (2 - q) if rank == 0 else q


def _listed_top(q: Tensor, width: int) -> tuple[Candidate, ...]:
    top = q.topk(min(width, q.shape[-1]))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return tuple(Candidate(t, prob, NodeKind.LISTED, prob, prob) for t, prob in pairs if prob > 0)


def _listed_and_sampled(
    q: Tensor, noise: DraftNoise, position: int, width: int, top_k: int, draw_index: int
) -> Proposal:
    """LISTED: the width - 1 most likely tokens; SAMPLED: one from the row of the others.

    The row is cut to its top_k tokens, renormalised and rounded to float32 *before* the draw: what
    is sent is what was sampled from (exactness, trap 1).
    """
    listed = _listed_top(q, width - 1) if width > 1 else ()
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
    outside = 1.0 - sum(c.q for c in listed)
    # If p were q it would be accepted whenever p is outside of what is LISTED.
    drawn_one = Candidate(token, float(q[token]), NodeKind.SAMPLED, max(outside, 0.0), outside)
    candidates = (*listed, drawn_one)
    return Proposal(candidates, tuple(ids.tolist()), tuple(row.tolist()))
