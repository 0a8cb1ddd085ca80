"""A model that says a given text, with pieces as a test wants them: half characters, whole words.

Its greedy answer is the script; below the script's token every logit is scripted noise, so that
sampling, alternatives and log-probabilities mean something.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from outrider.models.base import Feed, ModelSequence
from outrider.models.cells import CellLedger
from outrider.models.scripted import ScriptedLaw, scripted_logits
from outrider.types import ModelInfo
from outrider.vocabulary import Vocabulary

PROMPT = [ord("?")]
"""The script begins after one token."""

BYTES = tuple(bytes([byte]) for byte in range(256))
EOS = 256
SURE = 30.0
"""What the script's token has more than others: sure enough for temperature 1."""


class BytesTokenizer:
    """Text to its bytes; a conversation to the text of its last message."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        return self.encode(messages[-1][1])


class SayingModel:
    """Says `pieces`, then its end-of-sequence token; ids 0 to 255 are the bytes, 256 is the end."""

    def __init__(
        self, pieces: Sequence[bytes] = (), *, sure: float = SURE, drift: float = 0.0
    ) -> None:
        known = [*BYTES, b"<end>"]
        known += sorted({piece for piece in pieces if len(piece) != 1})
        ids = {piece: token for token, piece in enumerate(known)}
        self.script = [*(ids[piece] for piece in pieces), EOS]
        control = tuple(token == EOS for token in range(len(known)))
        self.tokenizer = BytesTokenizer(Vocabulary(tuple(known), control))
        self.info = ModelInfo(
            "saying", "fake", self.tokenizer.vocabulary.hash, len(known), 8192, (EOS,)
        )
        self._law = ScriptedLaw(vocab=len(known), order=1, drift=drift)
        self._sure = sure
        self._cells = CellLedger(1 << 16)

    def open(self, token_ids: Sequence[int]) -> ModelSequence:
        return self._cells.open(token_ids)

    def forward(self, feeds: Sequence[Feed]) -> list[Tensor]:
        first = [feed.sequence.next_node for feed in feeds]
        self._cells.record(feeds, self._cells.reserve(feeds))
        return [
            torch.stack([self._row(feed.sequence, start + row) for row in feed.rows])
            if feed.rows
            else torch.zeros(0, self.info.vocab_size)
            for feed, start in zip(feeds, first, strict=True)
        ]

    def keep(
        self, sequence: ModelSequence, path: Sequence[int], surviving: Iterable[int] = ()
    ) -> None:
        self._cells.keep(sequence, path, surviving)

    def close(self, sequence: ModelSequence) -> None:
        self._cells.close(sequence)

    def _row(self, sequence: ModelSequence, number: int) -> Tensor:
        said = sequence.nodes[number].position + 1 - len(PROMPT)
        row = scripted_logits(self._law, [sequence.context(number, 1)])[0]
        row[self.script[min(said, len(self.script) - 1)]] += self._sure
        return row


def as_bytes(text: str) -> list[bytes]:
    """One piece for each byte."""
    return [bytes([byte]) for byte in text.encode()]
