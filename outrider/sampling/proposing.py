"""What a draft proposes at a node, given its logits: the counterpart of the acceptance rules."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.sampling.history import NO_HISTORY, History
from outrider.sampling.noise import DraftNoise, PhiloxNoise, Stream
from outrider.sampling.processing import process
from outrider.sampling.warping import warp
from outrider.types import AcceptanceMode, NodeKind, SamplingParams

RACE_STEEPNESS = 1.8
"""How fast the chance of a runner falls with the time that the draft's race took it."""

RIVALS = 4
"""So many of a race are looked at, however few are proposed."""

LONGEST_LEAD = 8.0

MOST_NUMBERS = 2**22
"""Rows that have more numbers together are worked out in parts: each number is held several times,
with 8 bytes."""


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
    if not sampling.draws_proposals:
        return propose_listed(logits[None], sampling, [noise], positions=[position], width=width)[0]
    if not bool(torch.isfinite(logits.max())):
        return Proposal()
    return _listed_and_sampled(warp(logits, sampling), noise, position, width, top_k, draw_index)


def propose_listed(
    logits: Tensor,
    sampling: SamplingParams,
    noises: Sequence[DraftNoise],
    *,
    positions: Sequence[int],
    width: int,
) -> list[Proposal]:
    """What `propose` says to each of several rows where the target decides and the request asks
    nothing of the history: of all rows at once, which takes little longer than one.

    logits: [nodes, vocab]; `noises` and `positions` are those of the rows, the seed in `sampling`
    is not looked at.
    """
    most = max(1, MOST_NUMBERS // logits.shape[-1])
    if len(logits) > most:
        parts = [slice(start, start + most) for start in range(0, len(logits), most)]
        return [
            found
            for part in parts
            for found in propose_listed(
                logits[part], sampling, noises[part], positions=positions[part], width=width
            )
        ]
    proposals = [Proposal()] * len(logits)
    said = torch.isfinite(logits.amax(dim=-1)).nonzero().flatten().tolist()
    if not said:
        return proposals
    if len(said) < len(logits):
        logits = logits[said]
    if sampling.is_greedy:
        tops = _listed_tops(logits.to(torch.float32).softmax(dim=-1), width)
        found = [
            tuple(replace(c, chance=_greedy_chance(c.q, i)) for i, c in enumerate(top))
            for top in tops
        ]
    elif sampling.mode is AcceptanceMode.MATCH:
        found = _listed_tops(warp(logits, sampling), width)
    else:
        q = warp(logits, sampling)
        each = [(noises[i], positions[i]) for i in said]
        found = _raced(q, _races(q, each, max(width + 1, RIVALS)), width)
    for i, candidates in zip(said, found, strict=True):
        proposals[i] = Proposal(candidates)
    return proposals


def _races(
    q: Tensor, each: Sequence[tuple[DraftNoise, int]], count: int
) -> list[list[tuple[int, float]]]:
    """What `race` returns for each row of q with its noise, at its position."""
    philox = [(noise, at) for noise, at in each if isinstance(noise, PhiloxNoise)]
    if len(philox) < len(each) or q.device.type != "cpu":
        return [
            n.race(row, count, at, Stream.COUPLED) for row, (n, at) in zip(q, each, strict=True)
        ]
    weights, vocab = q.numpy(), q.shape[-1]
    numbers = np.stack([noise._numbers(Stream.COUPLED, at, 0, vocab) for noise, at in philox])
    np.maximum(numbers, 2.0**-53, out=numbers)
    with np.errstate(divide="ignore", over="ignore"):
        # As e >= number, what has a bound above the time of `count` others is none of the first.
        bounds = numbers / weights
        if count < vocab:
            some = np.argpartition(bounds, count - 1, axis=1)[:, :count]
            limits = _times(numbers, weights, np.arange(len(each))[:, None], some)
            is_first = bounds <= limits.max(axis=1, keepdims=True)
            rows, tokens = (is_first & np.isfinite(bounds)).nonzero()
        else:
            rows, tokens = np.isfinite(bounds).nonzero()
        times = _times(numbers, weights, rows, tokens)
    order = np.lexsort((times, rows))
    races: list[list[tuple[int, float]]] = [[] for _ in each]
    ranks = zip(rows[order].tolist(), tokens[order].tolist(), times[order].tolist(), strict=True)
    for row, token, time in ranks:
        if len(races[row]) < count and time < math.inf:
            races[row].append((token, time))
    return races


def _times(
    numbers: NDArray[np.float64],
    weights: NDArray[np.float64],
    rows: NDArray[np.int64],
    tokens: NDArray[np.int64],
) -> NDArray[np.float64]:
    times: NDArray[np.float64] = -np.log1p(-numbers[rows, tokens]) / weights[rows, tokens]
    return times


def _raced(
    q: Tensor, races: Sequence[list[tuple[int, float]]], width: int
) -> list[tuple[Candidate, ...]]:
    """The first tokens of each row's race. The target's race has other weights, so a token that was
    close to winning here may win there: its chance falls with a power of its time (fitted to a real
    pair; the draft learns from there on).
    """
    rows = [row for row, race in enumerate(races) for _ in race[:width]]
    tokens = [token for race in races for token, _ in race[:width]]
    probs = iter(q[rows, tokens].tolist())
    found: list[tuple[Candidate, ...]] = []
    for race in races:
        best = max(race[0][1], 1e-300)
        lags = [min(math.log(max(time, 1e-300) / best), LONGEST_LEAD) for _, time in race]
        weights = [math.exp(-RACE_STEEPNESS * lag) for lag in lags]
        total = sum(weights)
        lead = lags[1] if len(lags) > 1 else LONGEST_LEAD
        found.append(
            tuple(
                Candidate(race[i][0], next(probs), NodeKind.LISTED, weights[i] / total, lag or lead)
                for i, lag in enumerate(lags[:width])
            )
        )
    return found


def _greedy_chance(q: float, rank: int) -> float:
    """Two models that are alike agree on the most likely token more often than it is drawn (fitted
    to a real pair; the draft learns from there on).
    """
    return q * (2 - q) if rank == 0 else q


def _listed_tops(q: Tensor, width: int) -> list[tuple[Candidate, ...]]:
    """The most likely tokens of each row; q: [nodes, vocab]."""
    top = q.topk(min(width, q.shape[-1]))
    return [
        tuple(
            Candidate(token, prob, NodeKind.LISTED, prob, prob)
            for token, prob in zip(tokens, probs, strict=True)
            if prob > 0
        )
        for tokens, probs in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]


def _listed_and_sampled(
    q: Tensor, noise: DraftNoise, position: int, width: int, top_k: int, draw_index: int
) -> Proposal:
    """LISTED: the width - 1 most likely tokens; SAMPLED: one from the row of the others.

    The row is cut to its top_k tokens, renormalised and rounded to float32 *before* the draw: what
    is sent is what was sampled from (exactness, trap 1).
    """
    listed = _listed_tops(q[None], width - 1)[0] if width > 1 else ()
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
