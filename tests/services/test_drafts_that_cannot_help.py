"""Drafts that have nothing to say, or no longer: they cost nothing and change nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.drafts import PatternDraft
from support.local import Local
from support.models import alone

from outrider.models.scripted import ScriptedLaw
from outrider.types import SamplingParams
from outrider.v1 import draft_pb2

LAW = ScriptedLaw(vocab=32, seed=1)
MODEL = "scripted:vocab=32,seed=1"


async def test_a_draft_with_a_shorter_context_stops_helping_at_its_limit(local: Local) -> None:
    verify, draft = await asyncio.gather(local.verify(MODEL), local.draft(f"{MODEL},context=40"))
    client = await local.orchestrator(verify, {"short": draft}, wait_nodes=4, max_wait_ms=30_000)
    prompt = list(range(20))
    result = await client.generate(prompt, max_tokens=80, temperature=0).result()
    assert [t.id for t in result.tokens] == alone(LAW, prompt, 80)
    drafted = [index for index, token in enumerate(result.tokens) if token.is_drafted]
    assert drafted
    assert drafted[-1] <= 40 - 20, "nothing was drafted beyond its context"
    assert not result.stats.drafts[0].lost, "it did nothing wrong"
    [notice] = [n for n in result.notices if "short" in n]
    assert "stopped helping" in notice
    assert "40" in notice


async def test_a_prompt_beyond_a_drafts_context_is_answered_without_it(local: Local) -> None:
    verify, short, long = await asyncio.gather(
        local.verify(MODEL), local.draft(f"{MODEL},context=10"), local.draft(MODEL)
    )
    client = await local.orchestrator(
        verify, {"short": short, "long": long}, wait_nodes=2, max_wait_ms=30_000
    )
    prompt = list(range(20))
    for count in (1, 2):
        result = await client.generate(
            prompt, max_tokens=24, temperature=0, max_drafts=count
        ).result()
        assert [t.id for t in result.tokens] == alone(LAW, prompt, 24)
        assert (result.stats.accepted_tokens > 0) is (count == 2)
        assert not any(draft.lost for draft in result.stats.drafts)


@pytest.mark.parametrize(
    "prompt",
    [[5], [5, 6], [1, 2, 3, 9, 1, 2, 3], [4, 4, 4, 4]],
    ids=["one-token", "shorter-than-n", "match-at-the-very-end", "one-token-again-and-again"],
)
@pytest.mark.parametrize("temperature", [0, 1.0])
async def test_field_bug_20_prompt_lookup_survives_short_prompts_and_matches_at_the_end(
    local: Local, prompt: list[int], temperature: float
) -> None:
    verify, draft = await asyncio.gather(local.verify(MODEL), local.draft("ngram:n=3"))
    client = await local.orchestrator(verify, {"n": draft}, wait_nodes=1, max_wait_ms=20)
    result = await client.generate(prompt, max_tokens=40, temperature=temperature, seed=2).result()
    sampling = SamplingParams(temperature=temperature, seed=2)
    assert [t.id for t in result.tokens] == alone(LAW, prompt, 40, sampling)
    assert not result.stats.drafts[0].lost


async def test_field_bug_26_drafting_is_turned_off_where_the_target_alone_is_faster(
    local: Local,
) -> None:
    """Each row of a pass is dear and the draft is nearly always wrong: but for a few probes nothing
    is verified. Where the planner may not do that and passes wait for the draft, each has some."""
    verify, draft = await asyncio.gather(
        local.verify(f"{MODEL},row_ms=4,step_ms=6"), local.draft(f"{MODEL},drift=0.9")
    )
    verified = {}
    waiting: dict[str, Any] = {"wait_nodes": 1, "max_wait_ms": 30_000}
    for is_adaptive, tokens, settings in ((True, 96, {}), (False, 24, waiting)):
        client = await local.orchestrator(verify, {"bad": draft}, adaptive=is_adaptive, **settings)
        result = await client.generate([1], max_tokens=tokens, temperature=0).result()
        assert [t.id for t in result.tokens] == alone(LAW, [1], tokens)
        verified[is_adaptive] = result.stats.verified_tokens / result.stats.target_passes
    assert 0 < verified[True] < verified[False] / 3, verified


class DyingDraft(PatternDraft):
    """Right for four tokens a round, until after `rounds` commits its stream breaks."""

    def __init__(self, law: ScriptedLaw, rounds: int) -> None:
        super().__init__(law, right=4, length=5)
        self._rounds = rounds

    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        async def until_death() -> AsyncIterator[draft_pb2.DraftRequest]:
            for _ in range(self._rounds):
                yield await anext(requests)
            raise RuntimeError("the draft died")

        async for response in super().session(opening, until_death()):
            yield response


@pytest.mark.parametrize("temperature", [0, 1.0])
async def test_a_draft_killed_at_any_round_leaves_the_answer_as_it_is(
    local: Local, temperature: float
) -> None:
    sampling = SamplingParams(temperature=temperature, seed=8)
    expected = alone(LAW, [4], 40, sampling)
    verify = await local.verify(MODEL)
    for rounds in range(12):
        dying = await local.fake_draft(DyingDraft(LAW, rounds))
        client = await local.orchestrator(
            verify, {"dying": dying}, wait_nodes=4, max_wait_ms=100, adaptive=False
        )
        result = await client.generate([4], max_tokens=40, temperature=temperature, seed=8).result()
        assert [t.id for t in result.tokens] == expected, rounds
        is_over_before = result.stats.target_passes <= rounds
        assert result.stats.drafts[0].lost or is_over_before, rounds
        assert result.stats.accepted_tokens > 0 or rounds == 0 or temperature > 0
