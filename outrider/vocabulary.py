"""The bytes behind token ids: a tokenizer's identity, and text out of tokens. Knows no tokenizer
library.
"""

import codecs
import hashlib
from dataclasses import dataclass
from functools import cached_property

_BYTES = tuple(bytes([byte]) for byte in range(256))


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

    def ids(self) -> dict[tuple[bytes, bool], int]:
        """The id that stands for each (piece, control) that is not empty.

        Several ids may have one piece; a model writes the one that its tokenizer makes of the text.
        SentencePiece falls back to its 256 byte tokens for characters that have no token, so these
        count only where nothing else has their byte. Among others the first one counts: ids are
        given in the order of frequency.
        """
        fallback = self._byte_fallback()
        found: dict[tuple[bytes, bool], int] = {}
        last: dict[tuple[bytes, bool], int] = {}
        for token, key in enumerate(zip(self.pieces, self.control, strict=True)):
            if key[0]:
                (last if token in fallback else found).setdefault(key, token)
        return last | found

    def _byte_fallback(self) -> set[int]:
        """Runs of 256 ids for the bytes 0 to 255 in order. The bytes of byte-level BPE, which are
        tokens like others, have another order, printable ones first, or no rivals.
        """
        starts = (token for token, piece in enumerate(self.pieces) if piece == _BYTES[0])
        runs = (range(start, start + len(_BYTES)) for start in starts)
        return {i for run in runs if self.pieces[run.start : run.stop] == _BYTES for i in run}

    def piece(self, token: int) -> bytes:
        """Bytes that `token` adds to the text; ids in the padding of the logits add none."""
        if token >= len(self.pieces) or self.control[token]:
            return b""
        return self.pieces[token]


class PieceMatcher:
    """Any bytes as tokens of a vocabulary: the longest piece at each place, of equal ones the id
    that `Vocabulary.ids` names. Control tokens stand for no bytes.

    >>> PieceMatcher(Vocabulary((b"a", b"ab", b"c"), (False,) * 3)).ids(b"abca?")
    [1, 2, 0]
    """

    LONGEST = 64
    """Longer pieces are runs of one character; without them the search is short."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._ids: dict[bytes, int] = {
            piece: token
            for (piece, is_control), token in vocabulary.ids().items()
            if not is_control and len(piece) <= self.LONGEST
        }
        self._longest = max(map(len, self._ids), default=0)

    def ids(self, text: bytes) -> list[int]:
        """Ids whose pieces spell `text`; bytes that no piece begins with are left out."""
        found: list[int] = []
        start = 0
        while start < len(text):
            for stop in range(min(start + self._longest, len(text)), start, -1):
                token = self._ids.get(text[start:stop])
                if token is not None:
                    found.append(token)
                    break
            else:
                stop = start + 1
            start = stop
        return found


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
