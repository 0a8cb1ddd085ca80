"""One pass of the target turned into a decision, for whatever the request's sampling asks."""

import torch
from torch import Tensor

from outrider.errors import InternalError
from outrider.sampling.history import NO_HISTORY, History
from outrider.sampling.noise import Noise, Stream
from outrider.sampling.processing import allowed_logits, changes_rows, distribution
from outrider.sampling.rules import Acceptance, block, follow, reject
from outrider.tree import Subtree
from outrider.types import AcceptanceMode, SamplingParams


def accept(
    subtree: Subtree,
    logits: Tensor,
    sampling: SamplingParams,
    noise: Noise,
    position: int,
    history: History = NO_HISTORY,
) -> Acceptance:
    """Which nodes of `subtree` stand, and the target's own token after them.

    logits: [1 + len(subtree), vocab], row 0 the tip's. `position` is the absolute position of the
    first token below the tip; all random numbers are keyed by absolute positions. `history` is the
    one at the tip; every row is conditioned on the drafted tokens down to it, too (exactness, trap
    5). What follows a token that ends the text means nothing.

    Raises InvalidArgumentError where the request leaves no token to emit at the tip, and
    InternalError for NaN logits.
    """
    rows = _Rows(subtree, logits, sampling, history)
    if sampling.is_greedy:
        best = None if changes_rows(sampling, history) else _most_likely(logits)
        return follow(subtree, lambda row, _: best[row] if best else rows.most_likely(row))
    if sampling.mode is AcceptanceMode.REJECTION:
        return reject(subtree, rows.distribution, noise, position)
    if sampling.mode is AcceptanceMode.BLOCK:
        return block(subtree, rows.distribution, noise, position)
    stream = Stream.COUPLED if sampling.mode is AcceptanceMode.COUPLED else Stream.MATCH
    return follow(
        subtree,
        lambda row, depth: noise.choose(rows.distribution(row), position + depth, stream),
    )


class _Rows:
    """The target's rows under the request, each worked out when a decision reaches it: parents
    before their children."""

    def __init__(
        self, subtree: Subtree, logits: Tensor, sampling: SamplingParams, history: History
    ) -> None:
        self._subtree = subtree
        self._logits = logits
        self._sampling = sampling
        self._histories = {0: history}
        self._ends: dict[int, int | None] = {0: None}

    def distribution(self, row: int) -> Tensor:
        """p at a row, float64 [vocab]."""
        end = self._end_of_text(row)
        if end is not None:
            p = torch.zeros(self._logits.shape[-1], dtype=torch.float64)
            p[end] = 1.0
            return p
        return distribution(self._logits[row], self._sampling, self._history(row))

    def most_likely(self, row: int) -> int:
        """argmax p at a row."""
        end = self._end_of_text(row)
        if end is not None:
            return end
        allowed = allowed_logits(self._logits[row], self._sampling, self._history(row))
        return _most_likely(allowed[None])[0]

    def _history(self, row: int) -> History:
        if row not in self._histories:
            token = self._subtree.nodes[row - 1].token
            before = self._history(self._subtree.parents[row - 1])
            self._histories[row] = before.after((token,))
        return self._histories[row]

    def _end_of_text(self, row: int) -> int | None:
        """The token, at a row or above it, that ends the text, by itself or by completing the
        grammar: nothing may be allowed after it, and whatever is said to follow it is cut. So it is
        said to repeat.
        """
        if row not in self._ends:
            end = self._end_of_text(self._subtree.parents[row - 1])
            if end is None:
                token = self._subtree.nodes[row - 1].token
                grammar = self._history(row).grammar
                is_complete = grammar is not None and grammar.is_finished
                end = token if is_complete or token in self._histories[0].ends else None
            self._ends[row] = end
        return self._ends[row]


def _most_likely(logits: Tensor) -> list[int]:
    best = logits.argmax(dim=-1)
    if not bool(torch.isfinite(logits.gather(-1, best[:, None])).all()):
        raise InternalError("the target returned NaN logits; no token can be chosen from them")
    return [int(token) for token in best.tolist()]
