"""Tokens to bytes and back, for both families of tokenizers."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, processors
from transformers import PreTrainedTokenizerFast

from outrider.errors import InvalidArgumentError
from outrider.models.hf_tokenizer import HfTokenizer
from outrider.vocabulary import TextDecoder

from .tiny import CHAT_TEMPLATE, byte_level_tokenizer, metaspace_tokenizer

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


def test_a_tokenizer_is_not_changed_while_threads_use_it(library: PreTrainedTokenizerFast) -> None:
    """The library refuses a change while another thread encodes: `Already borrowed`."""
    library.backend_tokenizer.enable_truncation(max_length=4)
    library.backend_tokenizer.enable_padding(length=16)
    tokenizer = HfTokenizer(library)
    backend = library.backend_tokenizer
    assert (backend.truncation, backend.padding) == (None, None), "before any thread encodes"
    text = "the cat sat on the mat " * 20
    with ThreadPoolExecutor(4) as threads:
        jobs = [threads.submit(tokenizer.encode_within, text) for _ in range(64)]
        jobs += [threads.submit(tokenizer.encode, text) for _ in range(64)]
    assert len({tuple(job.result()) for job in jobs}) == 1


@pytest.fixture
def starting(library: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Both families with a tokenizer that puts `<s>` before every text."""
    start = library.convert_tokens_to_ids("<s>")
    library.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", start)]
    )
    return library


@pytest.mark.parametrize("text", TEXTS)
def test_raw_text_gets_one_start_token_whether_it_brings_it_or_not(
    starting: PreTrainedTokenizerFast, text: str
) -> None:
    tokenizer = HfTokenizer(starting)
    start = starting.convert_tokens_to_ids("<s>")
    within = starting(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.bos_token_id == start
    assert tokenizer.encode(text) == [start, *within]
    assert tokenizer.encode("<s>" + text) == [start, *within]
    assert tokenizer.encode_within(text) == within
    assert start not in within


def test_only_the_start_that_was_added_is_left_out(starting: PreTrainedTokenizerFast) -> None:
    tokenizer = HfTokenizer(starting)
    start = starting.convert_tokens_to_ids("<s>")
    assert tokenizer.encode("<s><s>the")[:3].count(start) == 2
    assert tokenizer.encode("the<s>the").count(start) == 2
    assert tokenizer.encode_within("<s>") == [start]


@pytest.mark.parametrize("text", ["the cat", "<s>the cat"])
def test_a_tokenizer_without_start_token_adds_none(
    library: PreTrainedTokenizerFast, text: str
) -> None:
    tokenizer = HfTokenizer(library)
    assert tokenizer.bos_token_id is None
    assert tokenizer.encode(text) == library(text)["input_ids"] == tokenizer.encode_within(text)


def test_special_tokens_in_a_text_are_what_the_tokenizer_makes_of_them(
    starting: PreTrainedTokenizerFast,
) -> None:
    ids = HfTokenizer(starting).encode("the</s>the")
    assert starting.convert_tokens_to_ids("</s>") in ids


def test_a_template_that_writes_the_start_token_gives_one_though_the_tokenizer_adds_one(
    starting: PreTrainedTokenizerFast,
) -> None:
    starting.chat_template = CHAT_TEMPLATE
    ids = HfTokenizer(starting).encode_chat([("user", "Zürich 👍🏽")])
    start = starting.convert_tokens_to_ids("<s>")
    assert ids[0] == start
    assert ids.count(start) == 1
    vocabulary = HfTokenizer(starting).vocabulary
    assert "Zürich 👍🏽" in b"".join(vocabulary.pieces[token] for token in ids).decode()


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
