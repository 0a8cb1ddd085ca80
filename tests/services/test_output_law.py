"""At temperature 1 the answers that come out of three processes follow the target's law.

The joint law of the first tokens is known exactly; thousands of answers are held against it.
"""

import asyncio
from collections.abc import Iterator

import pytest
from support.laws import ALPHA, joint_law, p_value
from support.processes import Processes, ServiceProcess

from outrider import AsyncClient
from outrider.models.scripted import ScriptedLaw
from outrider.types import SamplingParams

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


@pytest.mark.parametrize(("mode", "width", "warping"), CONFIGURATIONS, ids=str)
async def test_the_output_law_is_the_targets(
    orchestrator: ServiceProcess, mode: str, width: int, warping: dict[str, float]
) -> None:
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
                **warping,
            ).result()
        verified += result.stats.verified_tokens
        accepted += result.stats.accepted_tokens
        return tuple(token.id for token in result.tokens)

    async with AsyncClient(orchestrator.address, timeout_s=120) as client:
        sample = await asyncio.gather(*(answer(client, seed) for seed in range(SAMPLES)))
    assert 0.2 * verified < accepted < 0.95 * verified, "drafts must be neither idle nor perfect"
    law = joint_law(LAW, PROMPT, TOKENS, SamplingParams(**warping))
    assert p_value(sample, law) > ALPHA
