"""SmolLM2 in Q4_1 through llama.cpp: the bits of a plain decode, and the library's own text."""

import random
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import pytest
import torch

from outrider.models.base import TIP, Feed, ModelSequence
from outrider.models.hf_tokenizer import HfTokenizer
from outrider.models.llamacpp_model import LlamaCppModel
from outrider.models.packaged import fetch
from outrider.models.packaged_gguf import fetch_gguf
from outrider.models.registry import ModelOptions, load_model

from .plain_decode import PlainDecode
from .steps import prefill

pytestmark = pytest.mark.real_model

TEXTS = (
    "The outrider rides ahead of the coach. He looks for the bridge, he looks for the road, ",
    "def fibonacci(n):\n    if n < 2:\n        return n\n",
    "Once upon a time, in a village by the sea, there lived a woman who could talk to gulls. ",
)
CONTEXT = 768


@pytest.fixture(scope="module")
def original() -> Path:
    return fetch_gguf("smollm2.gguf")


@pytest.fixture(scope="module", params=[1, 2])
def threads(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def loaded(original: Path, threads: int) -> Iterator[LlamaCppModel]:
    yield load_model(str(original), ModelOptions(threads=threads, kv_tokens=2048))


@pytest.fixture(scope="module")
def plain(original: Path, threads: int) -> PlainDecode:
    return PlainDecode(original, threads=threads, context=CONTEXT)


class Conversation:
    """A sequence that gets a random tree in each pass, of which a random branch is accepted."""

    def __init__(self, model: LlamaCppModel, prompt: list[int], draw: random.Random) -> None:
        self.prompt = prompt
        self.tokens: list[int] = []
        self.rows: list[torch.Tensor] = []
        self._draw = draw
        self._model = model
        self.sequence: ModelSequence = prefill(model, prompt)[0]

    def feed(self) -> Feed:
        first, count = self.sequence.next_node, self._draw.randrange(2, 8)
        parents = [TIP, TIP]
        parents += [self._draw.randrange(first, first + i) for i in range(2, count)]
        tokens = tuple(self._draw.randrange(100, 40_000) for _ in range(count))
        return Feed(self.sequence, tokens, tuple(parents[:count]), tuple(range(count)))

    def accept(self, feed: Feed, rows: torch.Tensor) -> None:
        """The deepest branch, or, of two trees that are equally deep, the last one."""
        first = self.sequence.next_node - len(feed.tokens)
        ways = [self.sequence.path(first + i) for i in range(len(feed.tokens))]
        way = max(reversed(ways), key=len) if self._draw.random() < 0.7 else ways[1]
        self.tokens += [self.sequence.nodes[number].token for number in way]
        self.rows += [rows[number - first] for number in way]
        self._model.keep(self.sequence, way)


def assert_plain(conversation: Conversation, plain: PlainDecode) -> None:
    expected = plain.one_by_one(conversation.prompt, conversation.tokens)
    for index, (row, own) in enumerate(zip(conversation.rows, expected, strict=True)):
        assert torch.equal(row, own), f"token {index}: off by {(row - own).abs().max()}"


def test_after_any_accepted_branch_rows_are_a_plain_decodes_to_the_last_bit(
    loaded: LlamaCppModel, plain: PlainDecode
) -> None:
    """Several at once, each with tokens of the others between its own, and moved in between."""
    assert loaded.tokenizer is not None
    draw = random.Random(5)
    model = loaded.resized(400)
    prompts = [loaded.tokenizer.encode(text * 4) for text in TEXTS]
    assert max(map(len, prompts)) > 64, "a long pass takes other kernels"
    conversations = [Conversation(model, prompt, draw) for prompt in prompts]
    for round_index in range(9):
        if round_index % 3 == 2:
            model._arena.compact()
        chosen = draw.sample(conversations, draw.randrange(1, 4))
        feeds = [conversation.feed() for conversation in chosen]
        for conversation, feed, rows in zip(chosen, feeds, model.forward(feeds), strict=True):
            conversation.accept(feed, rows)
    for conversation in conversations:
        assert_plain(conversation, plain)


def test_a_long_context_has_the_bits_of_a_plain_decode_too(
    loaded: LlamaCppModel, plain: PlainDecode
) -> None:
    """From 512 cells on llama.cpp splits the attention of a single row among threads."""
    assert loaded.tokenizer is not None
    model = loaded.resized(1100)
    other = Conversation(model, loaded.tokenizer.encode(TEXTS[1]), random.Random(6))
    prompt = loaded.tokenizer.encode(" ".join(TEXTS) * 9)[:540]
    conversation = Conversation(model, prompt, random.Random(7))
    for _ in range(2):
        feeds = [conversation.feed(), other.feed()]
        for part, feed, rows in zip(
            (conversation, other), feeds, model.forward(feeds), strict=True
        ):
            part.accept(feed, rows)
    assert_plain(conversation, plain)


def test_a_reused_prefix_has_the_bits_of_a_plain_decode(
    loaded: LlamaCppModel, plain: PlainDecode
) -> None:
    assert loaded.tokenizer is not None
    model = loaded.resized(400)
    tokens = loaded.tokenizer.encode(TEXTS[0] * 5)
    first, _ = prefill(model, tokens[:90])
    model.close(first)
    again = model.open(tokens[:90])
    assert len(again.tokens) == 89
    (rows,) = model.forward([Feed.chain(again, tokens[89:90], [0])])
    assert torch.equal(rows[0], plain.one_by_one(tokens[:89], tokens[89:90])[0])


def test_greedy_text_is_the_librarys_own(loaded: LlamaCppModel, plain: PlainDecode) -> None:
    """Its `generate`, token by token; here with wrong drafts in every pass, and some right ones."""
    assert loaded.tokenizer is not None
    draw = random.Random(8)
    for text in TEXTS:
        prompt = loaded.tokenizer.encode(text)
        plain.library.reset()
        expected = []
        for token in plain.library.generate(prompt, temp=0.0, repeat_penalty=1.0):
            expected.append(token)
            if len(expected) == 24:
                break
        model = loaded.resized(300)
        sequence, row = prefill(model, prompt)
        emitted: list[int] = []
        token = int(row.argmax())
        while len(emitted) < len(expected):
            first = sequence.next_node
            guess = expected[len(emitted) + 1] if len(emitted) + 1 < len(expected) else 0
            wrong = draw.randrange(100, 40_000)
            feed = Feed(sequence, (token, wrong, guess), (TIP, first, first), (0, 2))
            (rows,) = model.forward([feed])
            emitted.append(token)
            token, path = int(rows[0].argmax()), [first]
            if token == guess:
                emitted.append(token)
                token, path = int(rows[1].argmax()), [first, first + 2]
            model.keep(sequence, path)
        assert emitted[: len(expected)] == expected


def test_kv_of_f16_gives_what_the_library_gives_by_default(original: Path) -> None:
    """One sequence and one thread: its own defaults, to the last bit."""
    model = load_model(str(original), ModelOptions(threads=1, kv_tokens=400, kv_dtype="f16"))
    assert isinstance(model, LlamaCppModel)
    assert model.tokenizer is not None
    default = PlainDecode(original, threads=1, context=CONTEXT, value_type=llama_cpp.GGML_TYPE_F16)
    prompt = model.tokenizer.encode(TEXTS[2] * 4)
    conversation = Conversation(model, prompt, random.Random(9))
    for _ in range(4):
        feed = conversation.feed()
        (rows,) = model.forward([feed])
        conversation.accept(feed, rows)
    assert_plain(conversation, default)


def test_tokens_are_those_of_the_same_models_checkpoint(loaded: LlamaCppModel) -> None:
    """So a GGUF draft and a transformers target, or the other way round, need no translation."""
    from transformers import AutoTokenizer

    other = HfTokenizer(AutoTokenizer.from_pretrained(fetch("smollm2")))
    own = loaded.tokenizer
    assert own is not None
    assert own.vocabulary.hash == other.vocabulary.hash
    for text in (*TEXTS, "é漢字😀\r\n\t x", "<|im_start|>user\nhi<|im_end|>", "", "\0"):
        assert own.encode(text) == other.encode(text)
        assert own.encode_within(text) == other.encode_within(text)
    for chat in ([("user", "hi")], [("system", "be"), ("user", " x "), ("assistant", "y")]):
        assert own.encode_chat(chat) == other.encode_chat(chat)
