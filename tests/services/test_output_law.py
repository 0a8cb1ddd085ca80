"""At temperature 1 the answers that come out of three processes follow the target's law.

The joint law of the first tokens is known exactly; thousands of answers are held against it.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.laws import ALPHA, joint_law, p_value
from support.processes import Processes, ServiceProcess
from support.requests import history_of, sampling_of

from outrider import AsyncClient
from outrider.models.scripted import ScriptedLaw

LAW = ScriptedLaw(vocab=4, seed=5)
MODEL = "scripted:vocab=4,seed=5"
PROMPT = [1]
TOKENS = 3
SAMPLES = 700
AT_ONCE = 16
CONFIGURATIONS = [
    ("rejection", 1, {"top_p": 0.95}),
    ("rejection", 2, {}),
    ("coupled", 1, {"temperature": 0.8}),
    ("match", 2, {"top_k": 3}),
    ("block", 1, {"top_p": 0.95}),
    ("block", 2, {"temperature": 1.2}),
    ("rejection", 1, {"frequency_penalty": 0.9, "presence_penalty": -0.5}),
    ("block", 1, {"repetition_penalty": 1.6}),
    ("coupled", 2, {"presence_penalty": 1.0, "logit_bias": {2: 0.7}}),
    ("rejection", 2, {"regex": "[abd]+", "banned_token_ids": [3]}),
]


@pytest.fixture(scope="module")
def orchestrator(module_processes: Processes) -> Iterator[ServiceProcess]:
    """Drafts that are half wrong; every pass waits for what they propose."""
    verify = module_processes.verify(MODEL, "--max-sessions", "64")
    drafts = {
        name: module_processes.draft(f"{MODEL},drift={drift}", "--max-sessions", "64")
        for name, drift in (("half", 0.5), ("quarter", 0.25))
    }
    yield module_processes.orchestrator(
        verify,
        drafts,
        *("--wait-nodes", "2", "--max-wait-ms", "2000", "--no-adaptive"),
        *("--num-speculative-tokens", "3", "--log-level", "warning"),
    )


@pytest.mark.parametrize(("mode", "width", "options"), CONFIGURATIONS, ids=str)
async def test_the_output_law_is_the_targets(
    orchestrator: ServiceProcess, mode: str, width: int, options: dict[str, Any]
) -> None:
    """Field bugs 9 and 10: rows cut by top-k and top-p, trees of two drafts with duplicates."""

    gate = asyncio.Semaphore(AT_ONCE)
    verified = accepted = 0

    async def answer(client: AsyncClient, seed: int) -> tuple[int, ...]:
        nonlocal verified, accepted
        async with gate:
            result = await client.generate(
                PROMPT,
                max_tokens=TOKENS,
                mode=mode,
                seed=seed,
                width=width,
                max_drafts=width,
                **options,
            ).result()
        verified += result.stats.verified_tokens
        accepted += result.stats.accepted_tokens
        return tuple(token.id for token in result.tokens)

    async with AsyncClient(orchestrator.address, timeout_s=120) as client:
        sample = await asyncio.gather(*(answer(client, seed) for seed in range(SAMPLES)))
    assert 0.2 * verified < accepted < 0.95 * verified, "drafts must be neither idle nor perfect"
    history = history_of(options, PROMPT, LAW.vocab)
    law = joint_law(LAW, PROMPT, TOKENS, sampling_of(options), history)
    assert p_value(sample, law) > ALPHA
