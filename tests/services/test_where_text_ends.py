"""Stop strings, half characters and end tokens inside accepted runs, over rounds and chunks
(exactness, trap 9).

An agreeing draft makes every round an accepted run of eight tokens, so that a stop at the third of
them has five accepted tokens behind it that must not show anywhere.
"""

import asyncio
from typing import Any

import pytest
from support.local import Local
from support.saying import PROMPT, SayingModel, as_bytes
from support.waiting import until

from outrider import AsyncClient
from outrider.client import Result
from outrider.types import FinishReason

K = 7
WAITING: dict[str, Any] = {
    "num_speculative_tokens": K,
    "wait_nodes": K,
    "max_wait_ms": 500,
    "adaptive": False,
}
GREEDY: dict[str, Any] = {"max_tokens": 64, "temperature": 0, "logprobs": 2}


async def saying(local: Local, pieces: list[bytes], **settings: Any) -> AsyncClient:
    """A target that says the pieces, and a draft that knows them."""
    verify, draft = await asyncio.gather(
        local.verify(SayingModel(pieces)), local.draft(SayingModel(pieces))
    )
    return await local.orchestrator(verify, {"a": draft}, **{**WAITING, **settings})


async def streamed(client: AsyncClient, **options: Any) -> tuple[list[str], Result]:
    """The text of each token as it arrives, and the whole."""
    generation = client.generate(PROMPT, **{**GREEDY, **options})
    texts = [token.text async for token in generation]
    return texts, await generation.result()


def check_agreement(texts: list[str], result: Result, ids: list[int]) -> None:
    """Text, ids, log-probabilities, usage and what was streamed end at one and the same token."""
    assert [token.id for token in result.tokens] == ids
    assert len(texts) == result.stats.emitted_tokens == len(ids)
    assert all(token.logprob is not None for token in result.tokens)
    assert all(len(token.top_logprobs) == 2 for token in result.tokens)
    assert result.text == "".join(texts)
    assert result.stats.accepted_tokens == sum(token.is_drafted for token in result.tokens)


@pytest.mark.parametrize("drafts", [0, 1])
async def test_field_bug_1_a_stop_string_completed_inside_an_accepted_run_ends_everything_there(
    local: Local, drafts: int
) -> None:
    """Eight tokens accepted, the stop is complete with the third."""
    text = "abEND and more that nobody sees"
    pieces = [b"ab", b"E", b"ND", *as_bytes(" and more that nobody sees")]
    client = await saying(local, pieces, max_wait_ms=5000)
    texts, result = await streamed(client, stop="END", max_drafts=drafts)
    check_agreement(texts, result, SayingModel(pieces).script[:3])
    assert result.text == "ab" == text[:2]
    assert result.finish_reason is FinishReason.STOP
    assert result.stop_string == "END"
    assert result.stats.target_passes == (1 if drafts else 3)


async def test_field_bug_1_a_stop_in_the_middle_of_a_token_is_not_missed(local: Local) -> None:
    """The whole text is looked at, not only how it ends."""
    pieces = [b"one", b" xSTOPx ", b"two", *as_bytes("three")]
    client = await saying(local, pieces)
    texts, result = await streamed(client, stop=["nothing", "STOP"])
    check_agreement(texts, result, SayingModel(pieces).script[:2])
    assert result.text == "one x"
    texts, result = await streamed(client, stop=["STOP"], include_stop=True)
    assert result.text == "one xSTOP"


@pytest.mark.parametrize("boundary", range(1, 11))
async def test_field_bug_2_the_first_half_of_a_stop_string_is_never_sent(
    local: Local, boundary: int
) -> None:
    """`boundary` tokens come before "E", "N", "D": with rounds of eight these lie in one round, or
    in two with every split. What is no stop after all comes as soon as that is certain."""
    lead = as_bytes("abcdefghij"[:boundary])
    pieces = [*lead, *as_bytes("ENx"), *as_bytes("END"), *as_bytes("rest")]
    client = await saying(local, pieces)
    texts, result = await streamed(client, stop="END")
    check_agreement(texts, result, SayingModel(pieces).script[: boundary + 6])
    assert result.text == "".join(texts) == "abcdefghij"[:boundary] + "ENx"
    expected = [*("abcdefghij"[:boundary]), "", "", "ENx", "", "", ""]
    assert texts == expected, "held back no longer than it could become a stop"


@pytest.mark.parametrize("lead", range(9))
async def test_field_bug_21_a_character_split_over_tokens_and_rounds_comes_whole(
    local: Local, lead: int
) -> None:
    """The four bytes of an emoji lie in one round, or in two with every split."""
    pieces = [*as_bytes("abcdefghi"[:lead]), *as_bytes("😀é"), b"!"]
    client = await saying(local, pieces)
    texts, result = await streamed(client)
    assert result.text == "abcdefghi"[:lead] + "😀é!"
    assert texts == [*"abcdefghi"[:lead], "", "", "", "😀", "", "é", "!", ""]
    assert "\ufffd" not in result.text
    assert result.finish_reason is FinishReason.STOP


async def test_field_bug_21_a_character_that_a_stop_or_the_limit_cuts(local: Local) -> None:
    """A stop string that ends before a half character drops it; a limit inside one shows U+FFFD."""
    pieces = [b"ab", b"ST\xf0\x9f", b"\x98\x80", *as_bytes("xyz")]
    client = await saying(local, pieces)
    texts, result = await streamed(client, stop="ST")
    check_agreement(texts, result, SayingModel(pieces).script[:2])
    assert result.text == "ab"
    texts, result = await streamed(client, max_tokens=2)
    check_agreement(texts, result, SayingModel(pieces).script[:2])
    assert texts == ["ab", "ST\ufffd"]
    assert result.finish_reason is FinishReason.LENGTH
    texts, result = await streamed(client, stop="T😀")
    check_agreement(texts, result, SayingModel(pieces).script[:3])
    assert texts == ["ab", "S", ""]


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 8, 9])
async def test_field_bug_5_delivered_tokens_usage_and_logprobs_are_as_many(
    local: Local, max_tokens: int
) -> None:
    client = await saying(local, as_bytes("a text that is long enough"))
    texts, result = await streamed(client, max_tokens=max_tokens, stop="never seen")
    check_agreement(texts, result, SayingModel(as_bytes("a text that is l")).script[:max_tokens])
    assert len(texts) == max_tokens


@pytest.mark.parametrize("drafts", [0, 1])
async def test_what_was_held_back_comes_with_the_last_token(local: Local, drafts: int) -> None:
    """Whether the model's end, a stop token or the limit ends the answer."""
    client = await saying(local, as_bytes("abEN"))
    script = SayingModel(as_bytes("abEN")).script
    ends: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["a", "b", "", "", "EN"]),
        ({"stop_token_ids": [ord("N")]}, ["a", "b", "", "EN"]),
        ({"max_tokens": 3}, ["a", "b", "E"]),
    ]
    for options, expected in ends:
        texts, result = await streamed(client, stop="END", max_drafts=drafts, **options)
        check_agreement(texts, result, script[: len(expected)])
        assert texts == expected
        assert result.stop_string == ""


async def test_of_two_ends_the_earlier_one_counts(local: Local) -> None:
    """An end token, a stop token id, a stop string and the limit in one accepted run."""
    client = await saying(local, as_bytes("abcdefgh"))
    cases: list[tuple[dict[str, Any], str, FinishReason]] = [
        ({"stop": "ef", "stop_token_ids": [ord("c")]}, "abc", FinishReason.STOP),
        ({"stop": "cd", "stop_token_ids": [ord("e")]}, "ab", FinishReason.STOP),
        ({"stop": "cd", "max_tokens": 3}, "abc", FinishReason.LENGTH),
        ({"stop": "cd", "max_tokens": 4}, "ab", FinishReason.STOP),
        ({"stop": "zz"}, "abcdefgh", FinishReason.STOP),
        ({"stop": "cd", "min_tokens": 3}, "abcdefgh", FinishReason.STOP),
        ({"stop": "ef", "min_tokens": 3}, "abcd", FinishReason.STOP),
    ]
    for options, text, reason in cases:
        for drafts in (0, 1):
            _, result = await streamed(client, max_drafts=drafts, **options)
            assert (result.text, result.finish_reason) == (text, reason), options


async def test_a_stopped_session_is_closed_on_every_side(local: Local) -> None:
    pieces = as_bytes("ab. More text than anybody asked for")
    verify, draft = await asyncio.gather(
        local.verify(SayingModel(pieces)), local.draft(SayingModel(pieces))
    )
    client = await local.orchestrator(verify, {"a": draft}, **WAITING)
    for _ in range(3):
        await streamed(client, stop=".")
    # A session leaves before its KV is free: freeing it waits for the model's thread.
    await until(
        lambda: verify.model.closed == draft.model.closed == 3, "freeing the KV on both sides"
    )
    assert verify.model.opened == draft.model.opened == 3
    assert not verify.scheduler._sessions
    assert not draft.scheduler._seats
