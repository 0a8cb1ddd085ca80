"""What the target reads is what its own tokenizer makes of the prompt, and nothing else."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from models.tiny import save_checkpoints
from support.local import Local
from transformers import AutoModelForCausalLM, AutoTokenizer

from outrider import AsyncClient

TOKENS = 24
MESSAGES = [
    {"role": "user", "content": "the cat — 東京 🗼"},
    {"role": "assistant", "content": "sat"},
    {"role": "user", "content": "on the mat"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model whose chat template writes the BOS token itself."""
    return save_checkpoints(tmp_path_factory.mktemp("tiny"))["llama"]


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder)


async def served(local: Local, folder: Path, **settings: Any) -> AsyncClient:
    model = f"hf:{folder}"
    settings = {"kv_tokens": 2048, "dtype": "float64", **settings}
    verify, draft = await asyncio.gather(
        local.verify(model, **settings), local.draft(model, **settings)
    )
    return await local.orchestrator(verify, {"a": draft}, wait_nodes=3, max_wait_ms=500)


def generated(folder: Path, ids: list[int]) -> list[int]:
    """What transformers answers, greedily."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    with torch.inference_mode():
        output = model.generate(torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False)
    answer: list[int] = output[0, len(ids) :].tolist()
    return answer


@pytest.mark.parametrize("form", ["chat", "text", "ids"])
async def test_each_form_of_a_prompt_is_read_as_the_tokenizer_defines_it(
    local: Local, folder: Path, tokenizer: Any, form: str
) -> None:
    text = "the cat — 東京 🗼<|user|>"
    prompts: dict[str, tuple[Any, list[int]]] = {
        "chat": (
            MESSAGES,
            tokenizer.apply_chat_template(
                MESSAGES, add_generation_prompt=True, tokenize=True, return_dict=False
            ),
        ),
        "text": (text, tokenizer(text)["input_ids"]),
        "ids": ([5, 0, 0, 7], [5, 0, 0, 7]),
    }
    prompt, ids = prompts[form]
    client = await served(local, folder)
    result = await client.generate(prompt, max_tokens=TOKENS, temperature=0).result()
    assert result.stats.prompt_tokens == len(ids)
    assert [token.id for token in result.tokens] == generated(folder, ids)
    if form == "chat":
        assert ids.count(tokenizer.bos_token_id) == 1, "the template's own, and no other"


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_field_bug_7_logprobs_of_a_transformer_do_not_depend_on_drafts(
    local: Local, folder: Path, seed: int
) -> None:
    """In float64 to 1e-6: accepted, recovered and bonus positions are rows of one and the same
    function of the tokens."""
    client = await served(local, folder)
    results = [
        await client.generate(
            [5, 6, 5, 6, 5], max_tokens=48, seed=seed, logprobs=3, max_drafts=count, top_k=3
        ).result()
        for count in (0, 1)
    ]
    assert [t.id for t in results[0].tokens] == [t.id for t in results[1].tokens]
    assert results[1].stats.accepted_tokens > 0
    for one, other in zip(results[0].tokens, results[1].tokens, strict=True):
        assert one.logprob == pytest.approx(other.logprob, abs=1e-6)
        assert [t.id for t in one.top_logprobs] == [t.id for t in other.top_logprobs]
        for a, b in zip(one.top_logprobs, other.top_logprobs, strict=True):
            assert a.logprob == pytest.approx(b.logprob, abs=1e-6)
