"""The endpoint as OpenAI's own client sees it: every answer is the one that gRPC gives."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from gateway.conftest import DRAFT, MODEL, Front
from openai import OpenAI
from support.models import alone

from outrider.models.scripted import ScriptedLaw, ScriptedTokenizer
from outrider.seeds import choice_seed
from outrider.types import SamplingParams

LAW = ScriptedLaw(vocab=62, seed=3)
TOKENIZER = ScriptedTokenizer(62, None)
MESSAGES: Any = [{"role": "user", "content": "hello"}]
CHAT_IDS = TOKENIZER.encode_chat([("user", "hello")])
LIKELY = {"temperature": 0}


def text_of(ids: list[int]) -> str:
    return b"".join(TOKENIZER.vocabulary.piece(token) for token in ids).decode()


def expected(prompt: list[int], count: int, **sampling: Any) -> str:
    """What the target alone says."""
    return text_of(alone(LAW, prompt, count, SamplingParams(**sampling)))


async def test_a_chat_is_answered_as_the_target_alone_does(front: Front) -> None:
    client = front.openai(await front.open())
    models = await client.models.list()
    assert [model.id for model in models.data] == [MODEL]
    answer = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_completion_tokens=20, seed=5, temperature=0.8
    )
    (choice,) = answer.choices
    assert choice.message.content == expected(CHAT_IDS, 20, seed=5, temperature=0.8)
    assert (choice.message.role, choice.finish_reason) == ("assistant", "length")
    usage = answer.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(CHAT_IDS), 20)
    assert usage.total_tokens == len(CHAT_IDS) + 20
    details = usage.completion_tokens_details
    assert details is not None
    assert (details.accepted_prediction_tokens or 0) > 0
    measured = answer.model_extra["metrics"]["speculative_decoding"]  # type: ignore[index]
    assert measured["num_accepted_draft_tokens"] == details.accepted_prediction_tokens
    assert sum(measured["acceptance_histogram"]) == measured["num_spec_steps"]
    assert (
        sum(i * n for i, n in enumerate(measured["acceptance_histogram"]))
        == details.accepted_prediction_tokens
    )
    assert answer.model_extra["outrider"]["seed"] == 5  # type: ignore[index]


@pytest.mark.parametrize("has_usage", [True, False])
async def test_a_streamed_chat_adds_up_to_the_same_answer(front: Front, has_usage: bool) -> None:
    client = front.openai(await front.open())
    options: Any = {"include_usage": True} if has_usage else openai.omit
    stream = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=20, seed=5, stream=True, stream_options=options
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == expected(CHAT_IDS, 20, seed=5)
    last = chunks[-2] if has_usage else chunks[-1]
    assert last.choices[0].finish_reason == "length"
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks[: chunks.index(last)])
    if has_usage:
        assert chunks[-1].choices == []
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens == 20
    assert all(chunk.usage is None for chunk in chunks[: chunks.index(last) + 1])


async def test_several_choices_are_the_answers_of_one_seed(front: Front) -> None:
    client = front.openai(await front.open())
    answer = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=12, seed=9, n=3
    )
    wanted = [expected(CHAT_IDS, 12, seed=choice_seed(9, i)) for i in range(3)]
    assert [choice.message.content for choice in answer.choices] == wanted
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(CHAT_IDS), 36)
    stream = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=12, seed=9, n=3, stream=True
    )
    assert await by_choice(stream) == wanted


async def by_choice(stream: AsyncIterator[Any]) -> list[str]:
    texts: dict[int, str] = {}
    async for chunk in stream:
        for choice in chunk.choices:
            delta = choice.delta.content if hasattr(choice, "delta") else choice.text
            texts[choice.index] = texts.get(choice.index, "") + (delta or "")
    return [texts[index] for index in sorted(texts)]


@pytest.mark.parametrize("prompt", ["tell", [4, 7, 9], ["one", "two"], [[1, 2], [3]]])
async def test_completions_of_every_kind_of_prompt(front: Front, prompt: Any) -> None:
    client = front.openai(await front.open())
    many = prompt if isinstance(prompt[0], (list, str)) and isinstance(prompt, list) else [prompt]
    ids = [TOKENIZER.encode(one) if isinstance(one, str) else one for one in many]
    wanted = [expected(one, 10, seed=choice_seed(2, choice)) for one in ids for choice in range(2)]
    options: Any = {"model": MODEL, "prompt": prompt, "max_tokens": 10, "seed": 2, "n": 2}
    answer = await client.completions.create(**options)
    assert [choice.text for choice in answer.choices] == wanted
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == sum(map(len, ids))
    assert await by_choice(await client.completions.create(**options, stream=True)) == wanted
    echoed = await client.completions.create(**options, echo=True)
    texts = [one if isinstance(one, str) else text_of(one) for one in many for _ in range(2)]
    assert [c.text for c in echoed.choices] == [a + b for a, b in zip(texts, wanted, strict=True)]
    streamed = await client.completions.create(**options, echo=True, stream=True)
    assert await by_choice(streamed) == [choice.text for choice in echoed.choices]


async def test_a_completion_is_sixteen_tokens_long_unless_told_and_may_only_echo(
    front: Front,
) -> None:
    client = front.openai(await front.open())
    answer = await client.completions.create(model=MODEL, prompt="a", **LIKELY)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16
    only = await client.completions.create(model=MODEL, prompt="ab", echo=True, max_tokens=0)
    assert (only.choices[0].text, only.choices[0].finish_reason) == ("ab", "length")
    assert only.usage is not None
    assert (only.usage.prompt_tokens, only.usage.completion_tokens) == (2, 0)


async def test_log_probabilities_in_both_shapes(front: Front) -> None:
    client = front.openai(await front.open())
    chat = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=6, logprobs=True, top_logprobs=3, **LIKELY
    )
    logprobs = chat.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert "".join(entry.token for entry in logprobs.content) == chat.choices[0].message.content
    for entry in logprobs.content:
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].token == entry.token, "greedy takes the likeliest"
        assert entry.top_logprobs[0].logprob == entry.logprob < 0
        assert bytes(entry.bytes or []).decode() == entry.token
    text = await client.completions.create(
        model=MODEL, prompt=CHAT_IDS, max_tokens=6, logprobs=3, **LIKELY
    )
    found = text.choices[0].logprobs
    assert found is not None
    assert found.tokens == [entry.token for entry in logprobs.content]
    assert found.token_logprobs == [entry.logprob for entry in logprobs.content]
    assert found.text_offset == list(range(6))
    assert found.top_logprobs is not None
    assert all(len(top) == 3 for top in found.top_logprobs)
    streamed = [
        (choice.logprobs.tokens, choice.logprobs.text_offset)
        async for chunk in await client.completions.create(
            model=MODEL, prompt=CHAT_IDS, max_tokens=6, logprobs=3, stream=True, **LIKELY
        )
        for choice in chunk.choices
        if choice.logprobs is not None
    ]
    assert [token for tokens, _ in streamed for token in tokens or []] == found.tokens
    assert [o for _, offsets in streamed for o in offsets or []] == found.text_offset


async def test_what_is_asked_of_sampling_reaches_the_target(front: Front) -> None:
    client = front.openai(await front.open())

    async def said(**options: Any) -> str:
        answer = await client.completions.create(
            model=MODEL, prompt=[5, 6], max_tokens=12, seed=4, extra_body=options
        )
        return answer.choices[0].text

    for options in (
        {"temperature": 0.5},
        {"top_k": 3},
        {"top_p": 0.5},
        {"min_p": 0.3},
        {"repetition_penalty": 1.5},
        {"frequency_penalty": 1.0},
        {"presence_penalty": 1.0},
    ):
        assert await said(**options) == expected([5, 6], 12, seed=4, **options), options
    assert await said(top_k=-1) == await said()
    assert set(await said(logit_bias={"7": 100})) == {"h"}
    assert set(await said(allowed_token_ids=[0, 1])) <= {"a", "b"}
    assert await said(seed=-1) == expected([5, 6], 12, seed=2**64 - 1)
    for draftless in ({"max_drafts": 0}, {"num_speculative_tokens": 1}, {"width": 1}):
        assert await said(**draftless) == await said(), draftless


async def test_where_an_answer_ends(front: Front) -> None:
    client = front.openai(await front.open())
    whole = expected([5, 6], 30, seed=4)
    stop = whole[8:10]
    options: Any = {"model": MODEL, "prompt": [5, 6], "max_tokens": 30, "seed": 4}
    answer = await client.completions.create(**options, stop=[stop, "never"])
    choice = answer.choices[0]
    assert (choice.text, choice.finish_reason) == (whole[: whole.index(stop)], "stop")
    assert choice.model_extra["stop_reason"] == stop  # type: ignore[index]
    kept = await client.completions.create(
        **options, stop=stop, extra_body={"include_stop_str_in_output": True}
    )
    assert kept.choices[0].text == whole[: whole.index(stop) + 2]
    token = TOKENIZER.encode_within(whole[9])[0]
    ended = await client.completions.create(**options, extra_body={"stop_token_ids": [token]})
    assert ended.choices[0].finish_reason == "stop"
    assert ended.choices[0].model_extra["stop_reason"] == token  # type: ignore[index]
    longer = await client.completions.create(
        **options, extra_body={"stop_token_ids": [token], "min_tokens": 25}
    )
    assert longer.usage is not None
    assert longer.usage.completion_tokens >= 25


async def test_a_form_is_kept(front: Front) -> None:
    client = front.openai(await front.open())
    answer = await client.completions.create(
        model=MODEL,
        prompt="x",
        max_tokens=20,
        seed=1,
        extra_body={"structured_outputs": {"regex": "[abc]{4}"}},
    )
    assert len(answer.choices[0].text) == 4
    assert set(answer.choices[0].text) <= set("abc")
    chosen = await client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        seed=1,
        extra_body={"structured_outputs": {"choice": ["yes", "no"]}},
    )
    assert chosen.choices[0].message.content in ("yes", "no")
    number: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [12]}}}
    asked = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, response_format=number
    )
    assert asked.choices[0].message.content == "12"


async def test_token_ids_are_told_where_they_are_wanted(front: Front) -> None:
    client = front.openai(await front.open())
    ids = alone(LAW, CHAT_IDS, 8, SamplingParams(seed=3))
    options: Any = {"model": MODEL, "max_tokens": 8, "seed": 3}
    wanted: Any = {"extra_body": {"return_token_ids": True}}
    chat = await client.chat.completions.create(**options, messages=MESSAGES, **wanted)
    assert chat.model_extra["prompt_token_ids"] == CHAT_IDS  # type: ignore[index]
    assert chat.choices[0].model_extra["token_ids"] == ids  # type: ignore[index]
    text = await client.completions.create(**options, prompt=CHAT_IDS, **wanted)
    assert text.choices[0].model_extra["token_ids"] == ids  # type: ignore[index]
    assert text.choices[0].model_extra["prompt_token_ids"] == CHAT_IDS  # type: ignore[index]
    stream = await client.completions.create(**options, prompt=CHAT_IDS, stream=True, **wanted)
    parts = [c.model_extra or {} async for chunk in stream for c in chunk.choices]
    assert [i for part in parts for i in part.get("token_ids", [])] == ids


async def test_the_waiting_client_works_too(front: Front) -> None:
    base = await front.open()

    def ask() -> tuple[str, str]:
        with OpenAI(base_url=f"{base}/v1", api_key="none", max_retries=0) as client:
            whole = client.chat.completions.create(
                model=MODEL, messages=MESSAGES, max_tokens=9, seed=8
            )
            stream = client.chat.completions.create(
                model=MODEL, messages=MESSAGES, max_tokens=9, seed=8, stream=True
            )
            told = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
            return whole.choices[0].message.content or "", told

    assert await asyncio.to_thread(ask) == (expected(CHAT_IDS, 9, seed=8),) * 2


async def test_parts_of_a_message_and_a_developers_word_are_text(front: Front) -> None:
    client = front.openai(await front.open())
    messages: Any = [
        {"role": "developer", "content": "be brief"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "he"}, {"type": "text", "text": "y"}],
        },
    ]
    ids = TOKENIZER.encode_chat([("system", "be brief"), ("user", "hey")])
    answer = await client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=6, seed=1
    )
    assert answer.choices[0].message.content == expected(ids, 6, seed=1)


async def test_another_name_is_answered_to_and_shown(front: Front) -> None:
    base = await front.open(draft=DRAFT, served_model_name=["gpt-4", "mine"])
    client = front.openai(base)
    assert [model.id for model in (await client.models.list()).data] == ["gpt-4", "mine"]
    assert (await client.models.retrieve("mine")).id == "mine"
    answer = await client.completions.create(model="mine", prompt="a", max_tokens=2)
    assert answer.model == "mine"
    with pytest.raises(openai.NotFoundError, match="'gpt-4' or 'mine'"):
        await client.completions.create(model=MODEL, prompt="a", max_tokens=2)
