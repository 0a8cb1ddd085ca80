"""The tokenizer of a GGUF file: ids out of text, and the bytes behind every id."""

import ctypes
import re
from collections.abc import Sequence
from typing import Any

import llama_cpp.llama_cpp as api
from jinja2.exceptions import TemplateError
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from outrider.errors import InvalidArgumentError
from outrider.models.llamacpp_library import LoadedModel
from outrider.vocabulary import Vocabulary

_PIECE_BYTES = 256

MOST_ALIKE = 4096
"""Letters, digits, spaces or other characters in a row. llama.cpp matches them by std::regex, which
recurses for each: some 25,000 overflow the stack of a thread and end the process."""

_ENDLESS = re.compile(
    "|".join(
        rf"{kind}{{{MOST_ALIKE + 1}}}" for kind in (r"[^\W\d_]", r"\d", r"\s", r"(?:[^\w\s]|_)")
    )
)


class LlamaCppTokenizer:
    """Encodes as llama.cpp does. Any thread may use it."""

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._handle = model.vocabulary
        self.vocabulary = read_vocabulary(model)
        bos, eos = api.llama_vocab_bos(self._handle), api.llama_vocab_eos(self._handle)
        adds_bos = bool(api.llama_vocab_get_add_bos(self._handle))
        self.bos_token_id: int | None = int(bos) if adds_bos and bos >= 0 else None
        self._eos_token_id: int | None = int(eos) if eos >= 0 else None
        template = model.text("tokenizer.chat_template")
        self._format: Jinja2ChatFormatter | None = None
        self._template_problem = ""
        if template:
            try:
                self._format = Jinja2ChatFormatter(
                    template, eos_token=self._text(eos), bos_token=self._text(bos)
                )
            except TemplateError as error:
                self._template_problem = str(error)

    def encode(self, text: str) -> list[int]:
        """Ids of raw text, with the begin-of-sequence token where the file asks for one.

        A text that begins with that token gets no other one; an end-of-sequence token that the
        file asks for is left out, because the text is to be continued.
        """
        ids = self._tokenize(text, add_special=True)
        if self.bos_token_id is not None and ids[:2] == [self.bos_token_id] * 2:
            ids = ids[1:]
        adds_eos = api.llama_vocab_get_add_eos(self._handle) and not text.endswith(
            self._text(self._eos_token_id) or "\0"
        )
        return ids[:-1] if adds_eos and ids[-1:] == [self._eos_token_id] else ids

    def encode_within(self, text: str) -> list[int]:
        """Ids of a part of a text: nothing is added around it."""
        return self._tokenize(text, add_special=False)

    def encode_chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        """Ids of (role, content) messages under the chat template, with a generation prompt.

        Raises InvalidArgumentError where the file has no template, or one that cannot be read, or
        its template refuses the messages.
        """
        if self._template_problem:
            raise InvalidArgumentError(
                f"the model's chat template cannot be read ({self._template_problem}); give a "
                "prompt instead of messages, or use another file of the model"
            )
        if self._format is None:
            raise InvalidArgumentError(
                "the model has no chat template; give a prompt instead of messages, or use an "
                "instruct model"
            )
        if not messages:
            raise InvalidArgumentError("there are no messages; give at least one")
        chat: list[Any] = [{"role": role, "content": content} for role, content in messages]
        try:
            text = self._format(messages=chat).prompt
        except Exception as error:  # whatever the code in a file can raise
            roles = ", ".join(role for role, _ in messages)
            raise InvalidArgumentError(
                f"the model's chat template refuses messages with the roles {roles}: {error}"
            ) from error
        return self._tokenize(text, add_special=False)

    def _tokenize(self, text: str, *, add_special: bool) -> list[int]:
        if _ENDLESS.search(text):
            raise InvalidArgumentError(
                f"the text has more than {MOST_ALIKE} letters, digits, spaces or other "
                "characters in a row, which llama.cpp cannot tokenize; break them up"
            )
        data = text.encode("utf-8", "replace")
        size = len(data) + 8
        while True:
            buffer = (ctypes.c_int32 * size)()
            count = int(
                api.llama_tokenize(self._handle, data, len(data), buffer, size, add_special, True)
            )
            if count >= 0:
                return list(buffer[:count])
            size = -count

    def _text(self, token: int | None) -> str:
        if token is None or token < 0:
            return ""
        return self.vocabulary.pieces[token].decode("utf-8", "replace")


def read_vocabulary(model: LoadedModel) -> Vocabulary:
    """The bytes of every id; control tokens have those of their name."""
    handle = model.vocabulary
    pieces: list[bytes] = []
    control: list[bool] = []
    for token in range(model.vocab_size):
        attributes = int(api.llama_vocab_get_attr(handle, token))
        is_control = bool(
            attributes & (api.LLAMA_TOKEN_ATTR_CONTROL | api.LLAMA_TOKEN_ATTR_UNKNOWN)
        )
        control.append(is_control)
        pieces.append(
            bytes(api.llama_vocab_get_text(handle, token)) if is_control else _piece(handle, token)
        )
    return Vocabulary(tuple(pieces), tuple(control))


def eos_token_ids(model: LoadedModel) -> tuple[int, ...]:
    """Every token that ends a text for llama.cpp: of a turn, of a message, of all."""
    handle = model.vocabulary
    return tuple(
        token for token in range(model.vocab_size) if api.llama_vocab_is_eog(handle, token)
    )


def _piece(handle: int, token: int) -> bytes:
    size = _PIECE_BYTES
    while True:
        buffer = ctypes.create_string_buffer(size)
        length = int(api.llama_token_to_piece(handle, token, buffer, size, 0, False))
        if length >= 0:
            return buffer.raw[:length]
        size = -length
