"""The tokenizer of a transformers checkpoint: ids out of text, and the bytes behind every id."""

import json
import re
from collections.abc import Sequence
from typing import Any

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerBase

from outrider.errors import InvalidArgumentError
from outrider.vocabulary import Vocabulary

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_METASPACE = "\u2581"


class HfTokenizer:
    """Encodes as the checkpoint's own tokenizer does. Any thread may use it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.vocabulary = read_vocabulary(tokenizer)
        self._tokenizer = tokenizer
        # The first call drops the truncation and padding of the file. That must be over before
        # threads encode: the library refuses a change of the tokenizer while another one uses it.
        around = tokenizer("")["input_ids"]
        starts = bool(around) and around[0] == tokenizer.bos_token_id
        self.bos_token_id: int | None = int(around[0]) if starts else None

    def encode(self, text: str) -> list[int]:
        """Ids of raw text, with the special tokens that the tokenizer itself adds around it.

        A text that begins with the begin-of-sequence token gets no other one.
        """
        ids = [int(token) for token in self._tokenizer(text, verbose=False)["input_ids"]]
        has_two = self.bos_token_id is not None and ids[:2] == [self.bos_token_id] * 2
        return ids[1:] if has_two else ids

    def encode_within(self, text: str) -> list[int]:
        """Ids of a part of a text: nothing is added around it."""
        encoded = self._tokenizer(text, add_special_tokens=False, verbose=False)
        return [int(token) for token in encoded["input_ids"]]

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Ids of (role, content) messages under the chat template, with a generation prompt.

        Raises InvalidArgumentError where the model has no template, or its template refuses the
        messages.
        """
        if not self._tokenizer.chat_template:
            raise InvalidArgumentError(
                "the model has no chat template; give a prompt instead of messages, or use an "
                "instruct model"
            )
        if not messages:
            raise InvalidArgumentError("there are no messages; give at least one")
        try:
            ids: Any = self._tokenizer.apply_chat_template(
                [{"role": role, "content": content} for role, content in messages],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=False,
            )
        except TemplateError as error:
            roles = ", ".join(role for role, _ in messages)
            raise InvalidArgumentError(
                f"the model's chat template refuses messages with the roles {roles}: {error}"
            ) from error
        return [int(token) for token in ids]


def read_vocabulary(tokenizer: PreTrainedTokenizerBase) -> Vocabulary:
    """The bytes of every id; special tokens are control, ids that nothing maps to are empty.

    Raises InvalidArgumentError for a tokenizer that is neither byte-level BPE nor
    SentencePiece-like, because its ids do not determine the bytes of a text.
    """
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    added: dict[int, Any] = tokenizer.added_tokens_decoder
    is_byte_level = _is_byte_level(tokenizer, vocabulary)
    size = max([*vocabulary.values(), *added]) + 1
    pieces = [b""] * size
    control = [False] * size
    for text, token in vocabulary.items():
        pieces[token] = _byte_level_piece(text) if is_byte_level else _metaspace_piece(text)
    for token, entry in added.items():
        pieces[token] = entry.content.encode()
        control[token] = bool(entry.special)
    return Vocabulary(tuple(pieces), tuple(control))


def _is_byte_level(tokenizer: PreTrainedTokenizerBase, vocabulary: dict[str, int]) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = backend.decoder if backend else None
    kinds = _decoder_kinds(json.loads(decoder.__getstate__()) if decoder else None)
    if "ByteLevel" in kinds:
        return True
    has_metaspace = any(text.startswith(_METASPACE) for text in vocabulary)
    if "WordPiece" in kinds or not has_metaspace:
        raise InvalidArgumentError(
            f"the tokenizer {type(tokenizer).__name__} is neither byte-level BPE nor "
            "SentencePiece-like, so the bytes "
            "behind its ids are unknown; use a model with such a tokenizer"
        )
    return False


def _decoder_kinds(decoder: dict[str, Any] | None) -> set[str]:
    if decoder is None:
        return set()
    kinds = {str(decoder["type"])}
    for part in decoder.get("decoders", ()):
        kinds |= _decoder_kinds(part)
    return kinds


def _byte_level_characters() -> dict[str, int]:
    """The printable characters that stand for bytes in byte-level BPE (Radford et al., GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    characters = {chr(byte): byte for byte in printable}
    characters.update({chr(256 + index): byte for index, byte in enumerate(others)})
    return characters


_BYTE_OF = _byte_level_characters()


def _byte_level_piece(text: str) -> bytes:
    if all(character in _BYTE_OF for character in text):
        return bytes(_BYTE_OF[character] for character in text)
    return text.encode()


def _metaspace_piece(text: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(text)
    if byte:
        return bytes([int(byte.group(1), 16)])
    return text.replace(_METASPACE, " ").encode()
