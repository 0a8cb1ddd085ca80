"""The bytes behind token ids: a tokenizer's identity, and text out of tokens. Knows no tokenizer
library.
"""

import codecs
import hashlib
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Vocabulary:
    """`pieces[id]` are the bytes of a token, `control[id]` tells whether it is left out of the
    text.
    """

    pieces: tuple[bytes, ...]
    control: tuple[bool, ...]

    def __len__(self) -> int:
        return len(self.pieces)

    @cached_property
    def hash(self) -> str:
        """SHA-256 over ids, bytes and control flags: equal exactly where every id means the same.

        Padding of the logits does not enter, so the padded sizes of one tokenizer compare equal.
        """
        digest = hashlib.sha256()
        for piece, is_control in zip(self.pieces, self.control, strict=True):
            digest.update(len(piece).to_bytes(4, "little") + bytes([is_control]) + piece)
        return digest.hexdigest()

    def piece(self, token: int) -> bytes:
        """Bytes that `token` adds to the text; ids in the padding of the logits add none."""
        if token >= len(self.pieces) or self.control[token]:
            return b""
        return self.pieces[token]


class TextDecoder:
    """Turns tokens into text, holding back the bytes of a character that is not complete yet.

    >>> decoder = TextDecoder(Vocabulary((b"\\xc3", b"\\xa9"), (False, False)))
    >>> decoder.push(0), decoder.push(1)
    ('', 'é')
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that became complete with `token`."""
        return self._decoder.decode(self._vocabulary.piece(token))

    def finish(self) -> str:
        """What was held back, with U+FFFD for a character that never became complete."""
        return self._decoder.decode(b"", final=True)
