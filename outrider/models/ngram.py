"""Backend `ngram`: prompt lookup. Proposes what followed the last few tokens earlier in the same
sequence.

It has no weights, works on the ids of any tokenizer, and can only draft: it is no model of text.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from outrider.models.arguments import Arguments
from outrider.models.base import Feed, ModelSequence, Tokenizer, check_feeds
from outrider.models.cells import CellLedger
from outrider.models.options import ModelOptions, lowered_context, refuse_options
from outrider.types import ModelInfo

MAX_VOCAB = 2**20
"""Larger ids are refused: a row is as wide as the largest id seen."""

_MAX_CONTEXT = 2**20
_RECENCY = 0.01


def lookup(tokens: npt.NDArray[np.int64], longest: int) -> dict[int, float]:
    """Probabilities of the tokens that followed earlier occurrences of the end of `tokens`.

    The longest end of at most `longest` tokens that occurred before decides; a follower's
    probability is its share of the occurrences, and a follower seen later goes before one seen as
    often. Empty where nothing matches.

    >>> lookup(np.array([5, 1, 6, 5, 1]), 3)
    {6: 1.0}
    """
    for length in range(min(longest, len(tokens) - 1), 0, -1):
        windows = np.lib.stride_tricks.sliding_window_view(tokens[:-1], length)
        matches = (windows == tokens[-length:]).all(axis=1).nonzero()[0]
        if len(matches) > 0:
            followers = tokens[matches + length].tolist()
            return _shares(followers)
    return {}


def _shares(followers: Sequence[int]) -> dict[int, float]:
    counts: dict[int, float] = {}
    for token in reversed(followers):
        counts[token] = counts.get(token, 0) + 1
    weights = {
        token: count - _RECENCY * rank / len(counts)
        for rank, (token, count) in enumerate(counts.items())
    }
    total = sum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


class NgramModel:
    """Prompt lookup behind the model protocol. A row without a match is -inf everywhere.

    Rows are float32 log-probabilities, as wide as `info.vocab_size`, or where that is 0 as the
    largest id on the paths of the feed plus one: the caller pads with -inf.
    """

    tokenizer: Tokenizer | None = None

    def __init__(self, info: ModelInfo, longest: int, kv_tokens: int) -> None:
        self.info = info
        self.cells = CellLedger(kv_tokens)
        self._longest = longest

    def open(self, token_ids: Sequence[int]) -> ModelSequence:
        """A new sequence with the longest known prefix of `token_ids`, at most all but the last."""
        return self.cells.open(token_ids)

    def forward(self, feeds: Sequence[Feed]) -> list[Tensor]:
        """Log-probabilities [len(rows), width] per feed; the class says what a row is."""
        check_feeds(feeds, self.info.vocab_size or MAX_VOCAB, self.info.context_tokens)
        first = [feed.sequence.next_node for feed in feeds]
        self.cells.record(feeds, self.cells.reserve(feeds))
        return [self._rows(feed, start) for feed, start in zip(feeds, first, strict=True)]

    def keep(
        self, sequence: ModelSequence, path: Sequence[int], surviving: Iterable[int] = ()
    ) -> None:
        """Commits the nodes of `path`, keeps `surviving` below it and drops all other nodes."""
        self.cells.keep(sequence, path, surviving)

    def close(self, sequence: ModelSequence) -> None:
        """Ends the sequence; its committed tokens stay known until the room is needed."""
        self.cells.close(sequence)

    def _rows(self, feed: Feed, start: int) -> Tensor:
        sequence = feed.sequence
        committed = np.array(sequence.tokens, dtype=np.int64)
        found: list[dict[int, float]] = []
        width = self.info.vocab_size
        for row in feed.rows:
            path = [sequence.nodes[number].token for number in sequence.path(start + row)]
            tokens = np.concatenate([committed, np.array(path, dtype=np.int64)])
            found.append(lookup(tokens, self._longest))
            if self.info.vocab_size == 0:
                width = max(width, int(tokens.max()) + 1)
        rows = torch.full((len(feed.rows), width), -torch.inf)
        for index, shares in enumerate(found):
            rows[index, list(shares)] = torch.tensor(list(shares.values())).log()
        return rows


def load(argument: str, options: ModelOptions) -> NgramModel:
    """Builds the model from `n=3,vocab=0`; raises InvalidArgumentError naming the known keys."""
    refuse_options("ngram", options)
    arguments = Arguments.parse("ngram", argument)
    longest = arguments.whole("n", 3, 1, 64)
    vocab = arguments.whole("vocab", 0, 0, MAX_VOCAB)
    arguments.finish()
    info = ModelInfo(
        model_name=f"ngram:{argument}" if argument else "ngram",
        backend="ngram",
        tokenizer_hash="",
        vocab_size=vocab,
        context_tokens=lowered_context(_MAX_CONTEXT, options.context_tokens),
    )
    return NgramModel(info, longest, options.kv_tokens)
