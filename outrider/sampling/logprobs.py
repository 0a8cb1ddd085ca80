"""Log-probabilities to report: the target's own, whatever a request does to its logits."""

from collections.abc import Sequence

import torch
from torch import Tensor

from outrider.types import TokenLogprobs


def token_logprobs(
    logits: Tensor, tokens: Sequence[int], alternatives: int
) -> tuple[TokenLogprobs, ...]:
    """For each row the log-probability of its token and of the `alternatives` most likely ones.

    logits: [len(tokens), vocab], as the model gave them. Computed in float64; among equal
    alternatives the lowest id comes first.
    """
    rows = logits.cpu().to(torch.float64).log_softmax(dim=-1)
    best = rows.topk(min(alternatives, rows.shape[-1]), dim=-1)
    reported: list[TokenLogprobs] = []
    for row, token, values, ids in zip(rows, tokens, best.values, best.indices, strict=True):
        pairs = zip(ids.tolist(), values.tolist(), strict=True)
        top = tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))
        reported.append(TokenLogprobs(float(row[token]), top))
    return tuple(reported)
