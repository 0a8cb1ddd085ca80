"""Gemma 3 270M, and SmolLM2-135M drafting for it and the other way round: two tokenizers (TLI)."""

import random
from collections.abc import Iterator

import pytest
import torch
from transformers import AutoModelForCausalLM

from draft_service.drafter import Drafter
from draft_service.translation import TokenIntersection
from outrider.models.hf_model import HfModel
from outrider.models.options import ModelOptions
from outrider.models.packaged import fetch
from outrider.models.registry import load_model
from outrider.plans import DraftPlan
from outrider.types import SamplingParams
from outrider.vocabulary import PieceMatcher

from .pairs import answer, tell
from .test_hf import greedy
from .test_hf_tokenizer import TEXTS

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(900)]

PROMPTS = (
    "The capital of France is Paris. The capital of Germany is",
    "def fibonacci(n):\n    if n",
)
TOKENS = 16


@pytest.fixture(scope="module")
def models() -> Iterator[dict[str, HfModel]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield {name: load_model(name, ModelOptions(kv_tokens=512)) for name in ("gemma3", "smollm2")}
    torch.set_num_threads(threads)


def test_gemma_answers_exactly(models: dict[str, HfModel]) -> None:
    gemma = models["gemma3"]
    tokenizer = gemma.tokenizer
    assert tokenizer is not None
    assert (gemma.info.vocab_size, gemma.info.context_tokens) == (262144, 32768)
    assert gemma.info.eos_token_ids == (1,)
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids[:1] == [2]
        assert tokenizer.encode("<bos>" + text) == ids
        assert b"".join(tokenizer.vocabulary.piece(token) for token in ids) == text.encode()
    library = AutoModelForCausalLM.from_pretrained(fetch("gemma3"))
    for seed, prompt in enumerate(PROMPTS):
        ids = tokenizer.encode(prompt)
        expected = library.generate(
            torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False, eos_token_id=None
        )[0, len(ids) :]
        assert greedy(gemma, ids, TOKENS, random.Random(seed)) == expected.tolist()


@pytest.mark.parametrize(("draft", "target"), [("smollm2", "gemma3"), ("gemma3", "smollm2")])
def test_single_characters_are_the_tokens_that_both_models_write(
    models: dict[str, HfModel], draft: str, target: str
) -> None:
    own, its = models[draft].tokenizer, models[target].tokenizer
    assert own is not None
    assert its is not None
    width = models[draft].info.vocab_size
    translation = TokenIntersection(its.vocabulary, own, width)
    logits = torch.arange(width, dtype=torch.float64)
    rows = translation.rows(logits)
    for character in [chr(code) for code in range(33, 127)] + ["\n", " "]:
        [one], [other] = own.encode_within(character), its.encode_within(character)
        assert rows[other] == one, character
        assert translation.token(other) == (one,)
        for tokenizer, token in ((own, one), (its, other)):
            assert PieceMatcher(tokenizer.vocabulary).ids(character.encode()) == [token]


@pytest.mark.parametrize(("draft", "target"), [("smollm2", "gemma3"), ("gemma3", "smollm2")])
def test_the_text_is_the_targets_own_with_a_draft_of_another_tokenizer(
    models: dict[str, HfModel], draft: str, target: str
) -> None:
    drafter = Drafter(models[draft])
    assert tell(drafter, models[target]) > 40_000
    tokenizer = models[target].tokenizer
    assert tokenizer is not None
    ids = tokenizer.encode(PROMPTS[0])
    for sampling in (SamplingParams(temperature=0, seed=1), SamplingParams(seed=7)):
        alone = answer(models[target], ids, TOKENS, sampling)
        helped = answer(models[target], ids, TOKENS, sampling, drafter, DraftPlan(3))
        assert helped.tokens[:TOKENS] == alone.tokens[:TOKENS]
        assert helped.accepted > 0
        assert helped.passes < alone.passes
