"""Tokens to bytes and back, for both families of tokenizers."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from outrider.errors import InvalidArgumentError
from outrider.models.hf_tokenizer import HfTokenizer
from outrider.vocabulary import TextDecoder

from .tiny import byte_level_tokenizer, metaspace_tokenizer

TEXTS = [
    "the cat sat on the mat",
    "  several   spaces\tand\n\nnewlines\r\n ",
    "def f(x):\n    return x ** 2  # ok\n",
    "Zürich, naïve façade: ÄÖÜ ß € §",
    "日本語のテキスト и русский עברית العربية",
    "emoji 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽",
    "\u2029\u00a0\x00\x7f\ufeff",
    "",
]


@pytest.fixture(params=["byte-level", "metaspace"])
def library(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return byte_level_tokenizer() if request.param == "byte-level" else metaspace_tokenizer()


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_of_a_text_are_its_bytes(library: PreTrainedTokenizerFast, text: str) -> None:
    vocabulary = HfTokenizer(library).vocabulary
    ids = library(text, add_special_tokens=False)["input_ids"]
    assert b"".join(vocabulary.piece(token) for token in ids) == text.encode()
    decoder = TextDecoder(vocabulary)
    assert "".join(decoder.push(token) for token in ids) + decoder.finish() == text


def test_every_id_has_its_bytes(library: PreTrainedTokenizerFast) -> None:
    vocabulary = HfTokenizer(library).vocabulary
    assert len(vocabulary) == len(library)
    assert all(vocabulary.pieces)


def test_special_tokens_are_control_and_added_words_are_text() -> None:
    library = byte_level_tokenizer()
    vocabulary = HfTokenizer(library).vocabulary
    start, plain = library.convert_tokens_to_ids(["<|user|>", "<plain>"])
    assert vocabulary.control[start]
    assert vocabulary.piece(start) == b""
    assert vocabulary.piece(plain) == b"<plain>"


def test_encode_adds_what_the_tokenizer_adds() -> None:
    library = metaspace_tokenizer()
    library.add_bos_token = True
    assert HfTokenizer(library).encode("the") == library("the")["input_ids"]


def test_a_chat_is_encoded_by_the_template_with_one_start_token() -> None:
    library = byte_level_tokenizer()
    tokenizer = HfTokenizer(library)
    ids = tokenizer.encode_chat([("system", "be kind"), ("user", "the cat")])
    assert all(type(token) is int for token in ids)
    assert library.decode(ids) == "<s><|system|>be kind\n<|user|>the cat\n<|assistant|>"
    assert ids.count(0) == 1


def test_a_role_that_the_template_refuses_is_an_invalid_argument() -> None:
    tokenizer = HfTokenizer(byte_level_tokenizer())
    with pytest.raises(InvalidArgumentError, match=r"roles user, tool: no tools here"):
        tokenizer.encode_chat([("user", "hi"), ("tool", "x")])


def test_a_chat_without_messages_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no messages"):
        HfTokenizer(byte_level_tokenizer()).encode_chat([])


def test_a_model_without_template_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no chat template"):
        HfTokenizer(metaspace_tokenizer()).encode_chat([("user", "hi")])


def test_a_tokenizer_without_known_bytes_is_refused() -> None:
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "the": 1}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    with pytest.raises(InvalidArgumentError, match="neither byte-level BPE nor SentencePiece"):
        HfTokenizer(PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]"))


def test_equal_tokenizers_have_equal_hashes(checkpoints: dict[str, Path]) -> None:
    loaded = PreTrainedTokenizerFast.from_pretrained(checkpoints["llama"])
    own = HfTokenizer(byte_level_tokenizer()).vocabulary.hash
    assert HfTokenizer(loaded).vocabulary.hash == own
    assert HfTokenizer(metaspace_tokenizer()).vocabulary.hash != own
