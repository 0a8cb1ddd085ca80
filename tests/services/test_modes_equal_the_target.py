"""Greedy answers are the target's own, whatever the mode, the tree and the drafts."""

import asyncio

import pytest
from support.local import Local
from support.models import alone

from outrider.models.scripted import ScriptedLaw

LAW = ScriptedLaw(vocab=32, seed=3)
MODEL = "scripted:vocab=32,seed=3"
DRAFTS = {"a": f"{MODEL},drift=0.3", "b": f"{MODEL},drift=0.6"}
PROMPTS = [[5], [1, 2, 3, 4, 5, 6, 7, 8, 9], "A prompt in words: naïve, 東京."]


@pytest.mark.parametrize("mode", ["coupled", "rejection", "block", "match"])
async def test_every_mode_tree_and_number_of_drafts_gives_the_targets_greedy_text(
    local: Local, mode: str
) -> None:
    verify, *drafts = await asyncio.gather(
        local.verify(MODEL, max_sessions=32), *(local.draft(model) for model in DRAFTS.values())
    )
    client = await local.orchestrator(
        verify,
        dict(zip(DRAFTS, drafts, strict=True)),
        wait_nodes=3,
        max_wait_ms=500,
        adaptive=False,
    )
    requests = [
        (prompt, width, count) for prompt in PROMPTS for width in (1, 3) for count in (0, 1, 2)
    ]
    results = await asyncio.gather(
        *(
            client.generate(
                prompt, max_tokens=64, temperature=0, mode=mode, width=width, max_drafts=count
            ).result()
            for prompt, width, count in requests
        )
    )
    for (prompt, width, count), result in zip(requests, results, strict=True):
        ids = [b % 32 for b in prompt.encode()] if isinstance(prompt, str) else prompt
        assert [t.id for t in result.tokens] == alone(LAW, ids, 64), (mode, prompt, width, count)
        assert len(result.stats.drafts) == count
    assert sum(result.stats.accepted_tokens for result in results) > 100


@pytest.mark.parametrize("mode", ["coupled", "rejection", "block", "match"])
async def test_fewer_target_passes_than_tokens_whenever_the_draft_agrees(
    local: Local, mode: str
) -> None:
    verify, draft = await asyncio.gather(local.verify(MODEL), local.draft(MODEL))
    client = await local.orchestrator(
        verify, {"a": draft}, wait_nodes=4, max_wait_ms=2000, adaptive=False
    )
    for temperature in (0, 1.0):
        result = await client.generate(
            [9], max_tokens=60, temperature=temperature, mode=mode, seed=1
        ).result()
        assert result.stats.target_passes < result.stats.emitted_tokens == 60


async def test_a_tree_finds_what_a_chain_misses(local: Local) -> None:
    """The second guess of a half-wrong draft is often the target's token."""
    verify, draft = await asyncio.gather(local.verify(MODEL), local.draft(f"{MODEL},drift=0.45"))
    client = await local.orchestrator(
        verify, {"a": draft}, wait_nodes=4, max_wait_ms=2000, adaptive=False
    )
    passes = {}
    for width in (1, 4):
        result = await client.generate([9], max_tokens=128, temperature=0, width=width).result()
        assert [t.id for t in result.tokens] == alone(LAW, [9], 128)
        passes[width] = result.stats.target_passes
    assert passes[4] < passes[1] < 128
