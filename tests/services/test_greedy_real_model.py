"""The text of a real model through three processes is the model library's own, token for token.

Field bug 8: with drafts, at temperature 0, nothing differs from plain greedy decoding.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from support.processes import Processes, ServiceProcess

from outrider import AsyncClient
from outrider.client import Result
from outrider.models.packaged import fetch
from outrider.types import FinishReason

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(1200)]

TOKENS = 256
THREADS = ("--threads", "1")
DRAFTED = ("--no-adaptive", "--wait-nodes", "3", "--max-wait-ms", "3000")
"""The draft is as slow as the target here: without waiting there would be nothing to verify."""
PROMPTS = {
    "chat": "My neighbour's dog barks every night. How do I bring it up with him politely?",
    "code": "Write a Python function that tells whether a string reads the same backwards.",
    "maths": "A train covers 180 km in 2.5 hours. How far does it get in 4 hours? Show the steps.",
    "translation": "Translate into French: The library closes at eight, but the café stays open.",
    "summary": (
        "Summarise in two sentences: Bees dance to tell others where flowers are. The angle of the "
        "dance shows the direction relative to the sun, its length shows the distance, and the "
        "others follow the dancer closely before they fly out."
    ),
}
SHORT = "What is the capital of France? Answer in one word."
UNICODE = "Repeat exactly: naïve café – 東京タワー 🗼🎌 Ωμέγα"


class Reference(NamedTuple):
    """What transformers says: ids of the prompt, ids and text of the answer."""

    prompt_ids: list[int]
    ids: list[int]
    text: str
    eos_token_id: int


@pytest.fixture(scope="module")
def references() -> dict[str, Reference]:
    """Greedy `generate` of transformers in float32, once."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = fetch("smollm2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    answers = {}
    for prompt in (*PROMPTS.values(), SHORT, UNICODE):
        encoded = tokenizer.apply_chat_template(
            messages(prompt), add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        prompt_ids = encoded["input_ids"]
        limit = TOKENS if prompt in PROMPTS.values() else 64
        with torch.inference_mode():
            output = model.generate(**encoded, max_new_tokens=limit, do_sample=False)
        ids = output[0, prompt_ids.shape[1] :].tolist()
        text = tokenizer.decode(ids, skip_special_tokens=True)
        answers[prompt] = Reference(prompt_ids[0].tolist(), ids, text, tokenizer.eos_token_id)
    return answers


@pytest.fixture(scope="module")
def verify(module_processes: Processes, references: dict[str, Reference]) -> ServiceProcess:
    # After the references: two models at work at once would only get in each other's way.
    return module_processes.verify("smollm2", *THREADS)


@pytest.fixture(scope="module")
def smollm2_draft(module_processes: Processes, verify: ServiceProcess) -> Iterator[ServiceProcess]:
    yield module_processes.draft("smollm2", *THREADS)


def messages(prompt: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": prompt}]


async def answers(
    processes: Processes,
    verify: ServiceProcess,
    drafts: Mapping[str, ServiceProcess],
    prompts: Mapping[str, int],
    *arguments: str,
    **options: Any,
) -> dict[str, Result]:
    """All prompts at once, so that passes are shared."""
    orchestrator = processes.orchestrator(verify, drafts, *arguments)
    async with AsyncClient(orchestrator.address, timeout_s=900) as client:
        results = await asyncio.gather(
            *(
                client.chat(messages(prompt), max_tokens=limit, temperature=0, **options).result()
                for prompt, limit in prompts.items()
            )
        )
    return dict(zip(prompts, results, strict=True))


def check(results: Mapping[str, Result], references: Mapping[str, Reference]) -> None:
    for prompt, result in results.items():
        reference = references[prompt]
        assert result.stats.prompt_tokens == len(reference.prompt_ids), prompt
        assert [token.id for token in result.tokens] == reference.ids, prompt
        assert result.text == reference.text, prompt
        ended = reference.ids[-1] == reference.eos_token_id
        assert (result.finish_reason is FinishReason.STOP) is ended, prompt
        assert result.stats.emitted_tokens == len(reference.ids)
        assert not any(draft.lost for draft in result.stats.drafts), result.notices


async def test_greedy_text_equals_transformers_with_a_chain(
    processes: Processes,
    verify: ServiceProcess,
    smollm2_draft: ServiceProcess,
    references: dict[str, Reference],
) -> None:
    prompts = dict.fromkeys(PROMPTS.values(), TOKENS)
    results = await answers(processes, verify, {"a": smollm2_draft}, prompts, *DRAFTED)
    check(results, references)
    passes = sum(result.stats.target_passes for result in results.values())
    emitted = sum(result.stats.emitted_tokens for result in results.values())
    assert passes < emitted / 3


async def test_greedy_text_equals_transformers_with_a_tree(
    processes: Processes,
    verify: ServiceProcess,
    smollm2_draft: ServiceProcess,
    references: dict[str, Reference],
) -> None:
    prompts = dict.fromkeys(PROMPTS.values(), TOKENS)
    results = await answers(
        processes,
        verify,
        {"a": smollm2_draft},
        prompts,
        *DRAFTED,
        width=3,
        num_speculative_tokens=3,
    )
    check(results, references)
    assert all(result.stats.accepted_tokens for result in results.values())


async def test_greedy_text_equals_transformers_with_two_drafts(
    processes: Processes,
    verify: ServiceProcess,
    smollm2_draft: ServiceProcess,
    references: dict[str, Reference],
) -> None:
    ngram = processes.draft("ngram:")
    prompts = dict.fromkeys(PROMPTS.values(), TOKENS)
    results = await answers(
        processes,
        verify,
        {"a": smollm2_draft, "n": ngram},
        prompts,
        *DRAFTED,
        num_speculative_tokens=4,
    )
    check(results, references)
    assert all(len(result.stats.drafts) == 2 for result in results.values())
    assert sum(d.drafted_tokens for r in results.values() for d in r.stats.drafts[1:]) > 0


async def test_greedy_text_equals_transformers_with_a_draft_that_proposes_nonsense(
    processes: Processes, verify: ServiceProcess, references: dict[str, Reference]
) -> None:
    nonsense = processes.draft("scripted:vocab=49152,tokenizer=any")
    prompts = dict.fromkeys(PROMPTS.values(), TOKENS)
    # It says itself how unlikely its tokens are: a planner that adapts would verify none.
    results = await answers(
        processes,
        verify,
        {"nonsense": nonsense},
        prompts,
        "--no-adaptive",
        num_speculative_tokens=3,
    )
    check(results, references)
    assert sum(result.stats.verified_tokens for result in results.values()) > 0
    assert sum(result.stats.accepted_tokens for result in results.values()) == 0


async def test_an_end_of_sequence_and_unicode_come_out_as_transformers_has_them(
    processes: Processes,
    verify: ServiceProcess,
    smollm2_draft: ServiceProcess,
    references: dict[str, Reference],
) -> None:
    results = await answers(processes, verify, {"a": smollm2_draft}, {SHORT: 64, UNICODE: 64})
    check(results, references)
    assert results[SHORT].finish_reason is FinishReason.STOP
    assert len(results[SHORT].tokens) < 64
