"""Drafts of another tokenizer (TLI), through real services: lossless at T = 0 and T > 0.

Exactness, trap 8: a draft proposes what both vocabularies have, and ids are compared by hash.
"""

import asyncio
from typing import Any

import pytest
from support.laws import ALPHA, joint_law, p_value
from support.local import Local
from support.models import alone
from support.waiting import until_asked

from outrider.models.scripted import ScriptedLaw
from outrider.types import SamplingParams

VOCAB = 24
LAW = ScriptedLaw(vocab=VOCAB, seed=3, order=1)
TARGET = f"scripted:vocab={VOCAB},seed=3,order=1"
OTHER = f"scripted:vocab={VOCAB},seed=3,order=1,shift=8,drift=0.1"
"""The same text law over 16 of the target's 24 tokens, under other ids, and 8 that it lacks."""
PROMPT = [11, 12, 2]
WAITING: dict[str, Any] = {"wait_nodes": 2, "max_wait_ms": 200, "adaptive": False}


@pytest.mark.parametrize("mode", ["coupled", "rejection", "block", "match"])
async def test_greedy_and_seeded_text_is_the_targets_with_a_draft_of_another_vocabulary(
    local: Local, mode: str
) -> None:
    verify, draft = await asyncio.gather(local.verify(TARGET), local.draft(OTHER))
    client = await local.orchestrator(verify, {"other": draft}, **WAITING)
    for temperature in (0, 1.0):
        result = await client.generate(
            PROMPT, max_tokens=64, temperature=temperature, seed=4, mode=mode
        ).result()
        ids = [token.id for token in result.tokens]
        if temperature == 0 or mode == "coupled":
            assert ids == alone(LAW, PROMPT, 64, SamplingParams(temperature=temperature, seed=4))
        assert result.stats.accepted_tokens > 0
        assert not result.stats.drafts[0].lost
        assert [n for n in result.notices if "16 tokens" in n], result.notices
        drafted = {token.id for token in result.tokens if token.is_drafted}
        assert min(drafted) >= 8, "it says only what both have"


@pytest.mark.parametrize("mode", ["rejection", "block"])
async def test_the_law_is_the_targets_with_a_draft_of_another_vocabulary(
    local: Local, mode: str
) -> None:
    law = ScriptedLaw(vocab=6, seed=9, order=1, sharpness=0.7)
    model = "scripted:vocab=6,seed=9,order=1,sharpness=0.7"
    verify, draft = await asyncio.gather(
        local.verify(model, max_sessions=64),
        local.draft(f"{model},shift=2,drift=0.3", max_sessions=64),
    )
    client = await local.orchestrator(
        verify, {"other": draft}, wait_nodes=1, max_wait_ms=2000, adaptive=False
    )
    gate = asyncio.Semaphore(16)

    async def answer(seed: int) -> tuple[int, ...]:
        async with gate:
            result = await client.generate([4], max_tokens=2, mode=mode, seed=seed).result()
        return tuple(token.id for token in result.tokens)

    sample = await asyncio.gather(*map(answer, range(600)))
    assert p_value(sample, joint_law(law, [4], 2, SamplingParams())) > ALPHA


async def test_a_draft_of_another_vocabulary_knows_the_grammar(local: Local) -> None:
    verify, draft = await asyncio.gather(local.verify(TARGET), local.draft(OTHER))
    # One candidate a place: of several, at most one is accepted.
    client = await local.orchestrator(verify, {"other": draft}, width=1, **WAITING)
    result = await client.generate(
        PROMPT, max_tokens=40, temperature=0, regex="([i-l][m-p])+"
    ).result()
    assert len(result.text) == 40
    assert result.stats.acceptance_rate > 0.3


async def test_padded_logits_of_one_tokenizer_fit_and_permuted_ids_are_refused(
    local: Local,
) -> None:
    """Equal size is not equal vocabulary: the hash is compared when they meet, and a vocabulary in
    another order of ids is damaged."""
    verify, permuted, same = await asyncio.gather(
        local.verify(TARGET), local.draft(f"{TARGET},rotate=5"), local.draft(TARGET)
    )
    client = await local.orchestrator(verify, {"permuted": permuted, "same": same}, **WAITING)
    result = await client.generate(PROMPT, max_tokens=24, temperature=0).result()
    assert [t.id for t in result.tokens] == alone(LAW, PROMPT, 24)
    assert [draft.name for draft in result.stats.drafts] == ["same"]
    [notice] = [n for n in result.notices if "permuted" in n]
    assert "another order" in notice
    cluster = await client.get_cluster()
    assert {draft.name: draft.usable for draft in cluster.drafts} == {
        "permuted": False,
        "same": True,
    }


async def test_a_draft_that_came_back_is_told_the_vocabulary_again(local: Local) -> None:
    """Its process is new and remembers nothing."""
    verify, draft = await asyncio.gather(local.verify(TARGET), local.draft(OTHER))
    client = await local.orchestrator(verify, {"other": draft}, **WAITING)
    first = await client.generate(PROMPT, max_tokens=32, temperature=0).result()
    assert first.stats.accepted_tokens > 0
    draft.service._scheduler.drafter.vocabularies = type(
        draft.service._scheduler.drafter.vocabularies
    )(draft.service._scheduler.drafter.model)

    async def is_used_again() -> bool:
        result = await client.generate(PROMPT, max_tokens=32, temperature=0).result()
        assert [t.id for t in result.tokens] == alone(LAW, PROMPT, 32)
        return bool(result.stats.accepted_tokens)

    await until_asked(is_used_again, "drafting after the vocabulary was sent again")
