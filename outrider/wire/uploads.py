"""A vocabulary in pieces: sent whole, taken in bounded in count, bytes and time."""

from collections.abc import AsyncIterator, Iterator

from outrider.errors import InvalidArgumentError
from outrider.v1 import draft_pb2
from outrider.vocabulary import Vocabulary

UPLOAD_S = 60.0
MAX_PIECES = 2**20
MAX_PIECE_BYTES = 4096
MAX_BYTES = 32 * 2**20
MAX_HASH_CHARACTERS = 128

PART_TOKENS = 8192
"""Tokens of a vocabulary that travel in one message."""


def parts(vocabulary: Vocabulary) -> Iterator[draft_pb2.SetVocabularyRequest]:
    """The messages that carry a vocabulary."""
    for start in range(0, max(len(vocabulary), 1), PART_TOKENS):
        part = slice(start, start + PART_TOKENS)
        yield draft_pb2.SetVocabularyRequest(
            tokenizer_hash="" if start else vocabulary.hash,
            pieces=vocabulary.pieces[part],
            control=vocabulary.control[part],
        )


async def collect(
    requests: AsyncIterator[draft_pb2.SetVocabularyRequest],
) -> tuple[str, Vocabulary]:
    """The announced tokenizer hash and the vocabulary; nobody has compared them yet.

    Raises InvalidArgumentError for a vocabulary that no tokenizer has.
    """
    name = ""
    pieces: list[bytes] = []
    control: list[bool] = []
    size = 0
    async for request in requests:
        name = name or request.tokenizer_hash
        if not 0 < len(name) <= MAX_HASH_CHARACTERS:
            raise InvalidArgumentError(
                f"the tokenizer hash has {len(name)} characters; the first message has to give it, "
                f"with 1 to {MAX_HASH_CHARACTERS}"
            )
        if len(request.pieces) != len(request.control):
            raise InvalidArgumentError(
                f"{len(request.pieces)} pieces came with {len(request.control)} control flags; "
                "give one for each"
            )
        pieces += request.pieces
        control += request.control
        size += sum(map(len, request.pieces))
        if len(pieces) > MAX_PIECES or size > MAX_BYTES:
            raise InvalidArgumentError(
                f"the vocabulary has more than {MAX_PIECES} pieces or {MAX_BYTES} bytes"
            )
        longest = max(map(len, request.pieces), default=0)
        if longest > MAX_PIECE_BYTES:
            raise InvalidArgumentError(
                f"a piece has {longest} bytes; no token has more than {MAX_PIECE_BYTES}"
            )
    if not pieces:
        raise InvalidArgumentError("the vocabulary is empty; send the target's")
    return name, Vocabulary(tuple(pieces), tuple(control))
