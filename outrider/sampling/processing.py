"""What a request adds to or forbids in a model's logits, before they are warped.

The order is fixed and the same on both sides: repetition penalty, frequency and presence penalties,
logit bias, allowed and banned tokens, grammar, min_tokens; then temperature, top-k, top-p and min-p
(`outrider.sampling.warping`).
"""

import torch
from torch import Tensor

from outrider.errors import InvalidArgumentError
from outrider.sampling.history import History
from outrider.sampling.warping import warp
from outrider.types import SamplingParams


def distribution(logits: Tensor, sampling: SamplingParams, history: History) -> Tensor:
    """The distribution that a token after `history` is really drawn from, float64 [vocab].

    logits: [vocab]. Raises InvalidArgumentError where the request leaves no token to draw, and
    InternalError for NaN.
    """
    return warp(allowed_logits(logits, sampling, history), sampling)


def allowed_logits(logits: Tensor, sampling: SamplingParams, history: History) -> Tensor:
    """`process`, refusing a row that the request leaves empty although the model does not."""
    processed = process(logits, sampling, history)
    if processed is not logits and is_empty(processed) and not is_empty(logits):
        raise InvalidArgumentError(
            f"after {history.length} tokens the request's allowed tokens, banned tokens and "
            "grammar leave nothing to emit; loosen one of them"
        )
    return processed


def is_empty(logits: Tensor) -> bool:
    """Whether no token has any probability: -inf everywhere."""
    return bool(logits.amax() == -torch.inf)


def process(logits: Tensor, sampling: SamplingParams, history: History) -> Tensor:
    """Logits [vocab] with penalties and bias added and forbidden tokens at -inf.

    Returns `logits` itself where the request asks for nothing. Ids beyond the vocabulary are passed
    over: a draft may know fewer than the target.
    """
    row = _penalised(logits, sampling, history)
    width = row.shape[-1]
    bias = [(token, number) for token, number in sampling.logit_bias if token < width]
    if bias:
        row = row.clone()
        ids = torch.tensor([token for token, _ in bias], device=row.device)
        row[ids] += torch.tensor([n for _, n in bias], dtype=row.dtype, device=row.device)
    if sampling.allowed_token_ids is not None:
        row = _without(row, ~_among(sampling.allowed_token_ids, width))
    if sampling.banned_token_ids:
        row = _without(row, _among(sampling.banned_token_ids, width))
    if history.grammar is not None:
        row = _without(row, ~history.grammar.allowed(width, history.ends))
    if history.length < history.min_tokens and history.ends:
        longer = _without(row, _among(history.ends, width))
        # A grammar may be complete before: then the text ends.
        row = row if history.grammar is not None and is_empty(longer) else longer
    return row


def _penalised(logits: Tensor, sampling: SamplingParams, history: History) -> Tensor:
    """Repetition penalty (Keskar et al. 2019, section 4.1) over prompt and answer; frequency and
    presence penalties, as the OpenAI API defines them, over the answer."""
    if not history.has_penalties:
        return logits
    row = logits.to(torch.float64) if logits.device.type != "mps" else logits.cpu().double()
    row = row.clone()
    width = row.shape[-1]
    if sampling.repetition_penalty != 1:
        seen = _ids({*history.prompt, *history.counts}, width, row)
        values = row[seen]
        factor = sampling.repetition_penalty
        row[seen] = torch.where(values > 0, values / factor, values * factor)
    counted = {token: n for token, n in history.counts.items() if token < width}
    if counted:
        ids = torch.tensor(list(counted), device=row.device)
        counts = torch.tensor(list(counted.values()), dtype=row.dtype, device=row.device)
        row[ids] -= sampling.frequency_penalty * counts + sampling.presence_penalty
    return row


def _ids(tokens: "set[int]", width: int, row: Tensor) -> Tensor:
    known = sorted(token for token in tokens if token < width)
    return torch.tensor(known, dtype=torch.int64, device=row.device)


def _among(tokens: "frozenset[int]", width: int) -> Tensor:
    """Bool [width], true at `tokens`."""
    mask = torch.zeros(width, dtype=torch.bool)
    mask[[token for token in tokens if token < width]] = True
    return mask


def _without(row: Tensor, forbidden: Tensor) -> Tensor:
    return row.masked_fill(forbidden.to(row.device), -torch.inf)
