"""A draft far away, or suddenly gone: the text is the target's own all the same."""

import asyncio

import pytest
from support.delay_proxy import DelayProxy, Link
from support.local import TARGET, Local
from support.models import alone
from support.waiting import until_asked

from outrider.client import AsyncClient
from outrider.models.scripted import ScriptedLaw
from outrider.types import SamplingParams

DRAFT = f"{TARGET},drift=0.3"
WAITING = {"adaptive": False, "wait_nodes": 2, "max_wait_ms": 2000}
"""A pass waits for drafts: only then are far ones verified at all by a target this fast."""
LAW = ScriptedLaw(vocab=64)
PROMPT = [3, 1]
TOKENS = 48
SAMPLINGS = [SamplingParams(temperature=0), SamplingParams(temperature=1.0, seed=9)]


async def usable(client: AsyncClient) -> bool:
    return (await client.get_cluster()).drafts[0].usable


async def ids(client: AsyncClient, sampling: SamplingParams, tokens: int = TOKENS) -> list[int]:
    result = await client.generate(
        PROMPT, max_tokens=tokens, temperature=sampling.temperature, seed=sampling.seed
    ).result()
    assert result.stats.accepted_tokens > 0
    return [token.id for token in result.tokens]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "coupled"])
async def test_a_draft_twenty_milliseconds_away_changes_no_token(
    local: Local, sampling: SamplingParams
) -> None:
    draft = await local.draft(DRAFT)
    far = Link(one_way_ms=20, jitter_ms=5, bytes_per_s=1e6)
    async with DelayProxy(draft.address, far) as proxy:
        client = await local.orchestrator(await local.verify(), {"far": proxy.address}, **WAITING)
        await until_asked(lambda: usable(client), "the use of the draft")
        assert await ids(client, sampling) == alone(LAW, PROMPT, TOKENS, sampling)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "coupled"])
async def test_a_wire_cut_in_the_middle_of_an_answer_changes_no_token(
    local: Local, sampling: SamplingParams
) -> None:
    draft = await local.draft(DRAFT)
    async with DelayProxy(draft.address, Link(2)) as proxy:
        client = await local.orchestrator(await local.verify(), {"far": proxy.address}, **WAITING)
        await until_asked(lambda: usable(client), "the use of the draft")
        generation = client.generate(
            PROMPT, max_tokens=2 * TOKENS, temperature=sampling.temperature, seed=sampling.seed
        )
        got = []
        async for token in generation:
            got.append(token.id)
            if len(got) == TOKENS // 2:
                proxy.cut()
        expected = alone(LAW, PROMPT, 2 * TOKENS, sampling)
        assert got == expected
        assert (await generation.result()).stats.drafts[0].lost

        await proxy.heal()
        await until_asked(lambda: usable(client), "the use of the healed draft", 60.0)
        assert await asyncio.wait_for(ids(client, sampling), 60.0) == expected[:TOKENS]
