"""What a request adds to or forbids in a model's logits, before they are warped.

The order is fixed and the same on both sides: repetition penalty, frequency and presence penalties,
logit bias, allowed and banned tokens, grammar, min_tokens; then temperature, top-k, top-p and min-p
(`outrider.sampling.warping`).
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

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
    """`process` for a row that a token must come from.

    Raises InvalidArgumentError where the request leaves nothing of a row that the model does not
    leave empty, and where its grammar ran into a limit.
    """
    processed = process(logits, sampling, history)
    if history.grammar is not None and history.grammar.problem:
        raise InvalidArgumentError(
            f"after {history.length} tokens the grammar became too much to follow: "
            f"{history.grammar.problem}; give a simpler one"
        )
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

    Returns `logits` itself unless the request `changes_rows`; else a new row: float64 where a
    penalty asks, of their own type otherwise. Ids beyond the row are passed over: a draft may know
    fewer than the target. A row after a grammar's `problem` is -inf everywhere.
    """
    if not changes_rows(sampling, history):
        return logits
    row = _penalised(logits, sampling, history)
    width = row.shape[-1]
    if sampling.logit_bias:
        row = _added(row, dict(sampling.logit_bias))
    if sampling.allowed_token_ids is not None:
        row = row.masked_fill(~_among(sampling.allowed_token_ids, width, row.device), -torch.inf)
    if sampling.banned_token_ids:
        row = row.masked_fill(_among(sampling.banned_token_ids, width, row.device), -torch.inf)
    if history.grammar is not None:
        allowed = history.grammar.allowed(width, history.ends)
        row = row.masked_fill(~allowed.to(row.device), -torch.inf)
    if history.length < history.min_tokens and history.ends:
        longer = row.masked_fill(_among(history.ends, width, row.device), -torch.inf)
        # A grammar may be complete before: then the text ends.
        row = row if history.grammar is not None and is_empty(longer) else longer
    return row


def changes_rows(sampling: SamplingParams, history: History) -> bool:
    """Whether the request asks anything of the row after `history`, and so perhaps of those after
    longer ones; what it does not ask of a row, it asks of none further down."""
    return bool(
        history.has_penalties
        or sampling.logit_bias
        or sampling.allowed_token_ids is not None
        or sampling.banned_token_ids
        or history.grammar is not None
        or (history.length < history.min_tokens and history.ends)
    )


def _penalised(logits: Tensor, sampling: SamplingParams, history: History) -> Tensor:
    """Repetition penalty (Keskar et al. 2019, section 4.1) over prompt and answer; frequency and
    presence penalties, as the OpenAI API defines them, over the answer."""
    if not history.has_penalties:
        return logits
    row = logits.cpu() if logits.device.type == "mps" else logits
    row = row.to(torch.float64, copy=True)
    if sampling.repetition_penalty != 1:
        prompt = history.prompt[history.prompt < row.shape[-1]].to(row.device)
        seen = torch.cat([prompt, _ids(history.counts, row)])  # twice there is written once
        values, factor = row[seen], sampling.repetition_penalty
        row[seen] = torch.where(values > 0, values / factor, values * factor)
    if sampling.frequency_penalty or sampling.presence_penalty:
        frequency, presence = sampling.frequency_penalty, sampling.presence_penalty
        row = _added(row, {token: -frequency * n - presence for token, n in history.counts.items()})
    return row


def _added(row: Tensor, numbers: Mapping[int, float]) -> Tensor:
    """A new row with each of `numbers` added at its token."""
    ids = _ids(numbers, row)
    values = [number for token, number in numbers.items() if 0 <= token < row.shape[-1]]
    return row.index_add(0, ids, torch.tensor(values, dtype=row.dtype, device=row.device))


def _ids(tokens: Iterable[int], row: Tensor) -> Tensor:
    """Those that the row has, int64, in their order."""
    known = [token for token in tokens if 0 <= token < row.shape[-1]]
    return torch.tensor(known, dtype=torch.int64, device=row.device)


@lru_cache(maxsize=64)
def _among(tokens: frozenset[int], width: int, device: torch.device) -> Tensor:
    """Bool [width], true at `tokens`. Kept, for a request asks for the same ones at every node; to
    be read only.
    """
    mask = torch.zeros(width, dtype=torch.bool)
    mask[[token for token in tokens if 0 <= token < width]] = True
    return mask.to(device)
