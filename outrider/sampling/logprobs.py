"""Log-probabilities to report: the target's own, whatever a request does to its logits."""

from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.types import TokenLogprobs


def token_logprobs(
    logits: Tensor, tokens: Sequence[int], alternatives: int
) -> tuple[TokenLogprobs, ...]:
    """For each row the log-probability of its token and of the `alternatives` most likely ones.

    logits: [len(tokens), vocab], as the model gave them. Computed in float64 on the CPU. Among
    equal alternatives the lowest ids are taken, lowest first.
    """
    rows = logits.cpu().to(torch.float64).log_softmax(dim=-1)
    return tuple(
        TokenLogprobs(float(row[token]), _most_likely(row, alternatives))
        for row, token in zip(rows, tokens, strict=True)
    )


def _most_likely(row: Tensor, count: int) -> tuple[tuple[int, float], ...]:
    if count == 0:
        return ()
    least = row.topk(min(count, row.shape[-1])).values[-1]
    ids = (row >= least).nonzero().flatten()
    order = row[ids].argsort(descending=True, stable=True)[:count]
    return tuple((int(token), float(row[token])) for token in ids[order])
