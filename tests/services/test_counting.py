"""Tokens, passes and acceptance are counted where they happen, and end where the text ends."""

import asyncio
from typing import Any

import pytest
from support.drafts import PatternDraft
from support.local import TARGET, Local, Running
from support.models import alone

from outrider import AsyncClient
from outrider.client import Result
from outrider.models.scripted import ScriptedLaw
from outrider.types import FinishReason

LAW = ScriptedLaw(vocab=64)
PROMPT = [7]
K = 7
WAITING: dict[str, Any] = {
    "num_speculative_tokens": K,
    "width": 1,
    "wait_nodes": K,
    "max_wait_ms": 5000,
    "adaptive": False,
}


async def agreeing(
    local: Local, model: str = TARGET, max_wait_ms: int = 5000
) -> tuple[AsyncClient, Running]:
    verify, draft = await asyncio.gather(local.verify(model), local.draft(model))
    settings = {**WAITING, "max_wait_ms": max_wait_ms}
    return await local.orchestrator(verify, {"a": draft}, **settings), verify


def ids(result: Result) -> list[int]:
    return [token.id for token in result.tokens]


@pytest.mark.parametrize("options", [{"temperature": 0}, {"temperature": 1.0, "seed": 2}], ids=str)
async def test_an_agreeing_draft_of_depth_seven_makes_eight_tokens_a_pass(
    local: Local, options: dict[str, Any]
) -> None:
    client, verify = await agreeing(local)
    result = await client.generate(PROMPT, max_tokens=80, **options).result()
    assert result.stats.target_passes == 10
    assert result.stats.tokens_per_pass == 8.0
    assert verify.model.deciding_passes == 10, "counted at the verifier's own model"
    assert [bool(token.draft) for token in result.tokens] == ([True] * 7 + [False]) * 10


@pytest.mark.parametrize("right", [0, 1, 3, 6, 7])
async def test_a_known_pattern_gives_exact_counters(local: Local, right: int) -> None:
    """Field bug 25. `right` of seven tokens are the target's, round after round."""
    verify = await local.verify()
    draft = await local.fake_draft(PatternDraft(LAW, right, K))
    client = await local.orchestrator(verify, {"a": draft}, **WAITING)
    rounds = 5
    result = await client.generate(
        PROMPT, max_tokens=rounds * (right + 1) + K + 1, temperature=0
    ).result()
    assert ids(result) == alone(LAW, PROMPT, rounds * (right + 1) + K + 1)
    first_rounds = result.tokens[: rounds * (right + 1)]
    assert [t.draft for t in first_rounds] == (["a"] * right + [""]) * rounds
    verify_passes = verify.model.deciding_passes
    assert result.stats.target_passes == verify_passes
    assert result.stats.accepted_tokens == sum(t.is_drafted for t in result.tokens)
    assert result.stats.drafts[0].accepted_tokens == result.stats.accepted_tokens
    assert result.stats.emitted_tokens == len(result.tokens)
    assert result.stats.accepted_tokens + verify_passes == result.stats.emitted_tokens


async def test_counters_of_concurrent_requests_do_not_mix(local: Local) -> None:
    """Field bug 25: each request's figures are its own."""
    verify = await local.verify()
    draft = await local.fake_draft(PatternDraft(LAW, 3, K))
    client = await local.orchestrator(verify, {"a": draft}, **WAITING)
    alone_result, *together = await asyncio.gather(
        client.generate(PROMPT, max_tokens=40, temperature=0, max_drafts=0).result(),
        *(client.generate([seed], max_tokens=40, temperature=0).result() for seed in range(4)),
    )
    assert alone_result.stats.accepted_tokens == alone_result.stats.verified_tokens == 0
    assert alone_result.stats.target_passes == 40
    for result in together:
        # Ten rounds of four; near the end the limit of 40 leaves no room for all seven.
        assert result.stats.target_passes == 10
        assert result.stats.accepted_tokens == 30
        assert result.stats.verified_tokens == 9 * K + 3


@pytest.mark.parametrize("max_tokens", range(1, K + 3))
async def test_max_tokens_is_exact_when_everything_is_accepted(
    local: Local, max_tokens: int
) -> None:
    """Field bugs 4 and 5."""
    client, _ = await agreeing(local)
    result = await client.generate(PROMPT, max_tokens=max_tokens, temperature=0).result()
    assert ids(result) == alone(LAW, PROMPT, max_tokens)
    assert result.stats.emitted_tokens == max_tokens
    assert result.finish_reason is FinishReason.LENGTH
    assert result.stats.target_passes == -(-max_tokens // (K + 1))


def with_first_at(token_position: int) -> int:
    """A token that the greedy answer says at this position for the first time."""
    answer = alone(LAW, PROMPT, token_position + 1)
    assert answer.index(answer[-1]) == token_position
    return answer[-1]


STOP_AT = 10
"""The third token of the second accepted run."""


@pytest.mark.parametrize("kind", ["eos", "stop_token_ids"])
async def test_a_stop_inside_an_accepted_run_ends_everything_at_that_token(
    local: Local, kind: str
) -> None:
    """Field bug 1, for ids: text, ids, finish reason and stats end at one and the same token."""
    stop = with_first_at(STOP_AT)
    model = f"{TARGET},eos={stop}" if kind == "eos" else TARGET
    client, verify = await agreeing(local, model, max_wait_ms=100)
    result = await client.generate(
        PROMPT,
        max_tokens=64,
        temperature=0,
        stop_token_ids=[] if kind == "eos" else [stop],
    ).result()
    assert ids(result) == alone(LAW, PROMPT, STOP_AT + 1)
    assert result.finish_reason is FinishReason.STOP
    assert result.stats.emitted_tokens == STOP_AT + 1
    assert result.stats.accepted_tokens == sum(t.is_drafted for t in result.tokens)
    assert result.text == "".join(token.text for token in result.tokens)
    assert (result.tokens[-1].text == "") is (kind == "eos"), "an EOS token does not show"
    assert verify.scheduler._sessions == {}


async def test_ignore_eos_goes_on_to_the_limit(local: Local) -> None:
    stop = with_first_at(STOP_AT)
    client, _ = await agreeing(local, f"{TARGET},eos={stop}", max_wait_ms=100)
    result = await client.generate(PROMPT, max_tokens=40, temperature=0, ignore_eos=True).result()
    assert ids(result) == alone(LAW, PROMPT, 40)
    assert result.finish_reason is FinishReason.LENGTH


async def test_the_context_ends_the_text_with_or_without_drafts(local: Local) -> None:
    client, _ = await agreeing(local, f"{TARGET},context=20")
    for drafts in (0, 1):
        result = await client.generate(
            PROMPT, max_tokens=500, temperature=0, max_drafts=drafts
        ).result()
        assert ids(result) == alone(LAW, PROMPT, 19)
        assert result.finish_reason is FinishReason.LENGTH


async def test_two_drafts_that_agree_on_nonsense_convince_nobody(local: Local) -> None:
    """Field bug 28: the target's passes are counted, and each token costs one."""
    verify = await local.verify()
    nonsense = {name: PatternDraft(LAW, 0, 3, name) for name in ("a", "b")}
    drafts = {name: await local.fake_draft(draft) for name, draft in nonsense.items()}
    client = await local.orchestrator(verify, drafts, **{**WAITING, "wait_nodes": 3})
    result = await client.generate(PROMPT, max_tokens=24, temperature=0).result()
    assert ids(result) == alone(LAW, PROMPT, 24)
    assert verify.model.deciding_passes == 24
    assert result.stats.accepted_tokens == 0
    assert [(d.lost, d.drafted_tokens >= 23 * 3) for d in result.stats.drafts] == [
        (False, True)
    ] * 2


async def test_usage_equals_what_is_delivered_token_by_token(local: Local) -> None:
    client, _ = await agreeing(local)
    generation = client.generate("some text", max_tokens=33, temperature=0)
    delivered = [token async for token in generation]
    result = await generation.result()
    assert len(delivered) == result.stats.emitted_tokens == 33
    assert result.stats.prompt_tokens == len(b"some text")
    assert "".join(token.text for token in delivered) == result.text
