"""Bodies become requests, and answers shapes, without any service."""

import json
import math
from typing import Any

import pytest

from orchestrator.gateway.bodies import ChatBody, CompletionBody
from orchestrator.gateway.extras import Extras, metrics_of, usage_of
from orchestrator.gateway.gathered import Answer
from orchestrator.gateway.reading import chat_job, completion_job, unknown_fields
from orchestrator.gateway.telling import CompletionTelling, Head, Wanted
from orchestrator.requests import EmittedToken, Stats, TokenLogprob, Tokens
from outrider.errors import InternalError, InvalidArgumentError
from outrider.types import AcceptanceMode, Grammar

HELLO = {"messages": [{"role": "user", "content": "hi"}]}


def chat(**fields: Any) -> ChatBody:
    return ChatBody.model_validate({**HELLO, **fields})


def text(**fields: Any) -> CompletionBody:
    return CompletionBody.model_validate({"prompt": "hi", **fields})


def test_a_chat_that_says_nothing_has_the_defaults() -> None:
    (request,) = chat_job(chat(), "id", 99).requests()
    assert (request.request_id, request.prompt) == ("id", (("user", "hi"),))
    assert request.stop.max_tokens == 99
    assert request.sampling.seed is None
    assert (request.mode, request.logprobs, request.max_drafts) == (None, None, None)


def test_each_choice_is_a_request_of_its_own() -> None:
    requests = completion_job(text(prompt=["a", "b"], n=2), "id").requests()
    assert [(r.request_id, r.prompt, r.choice_index) for r in requests] == [
        ("id-0", "a", 0),
        ("id-1", "a", 1),
        ("id-2", "b", 0),
        ("id-3", "b", 1),
    ]


@pytest.mark.parametrize(
    ("fields", "grammar"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Grammar(json_schema='{"type": "object"}')),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"enum": [1]}}}},
            Grammar(json_schema='{"enum": [1]}'),
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            Grammar(json_schema="{}"),
        ),
        ({"structured_outputs": {"json": {"enum": [1]}}}, Grammar(json_schema='{"enum": [1]}')),
        ({"structured_outputs": {"json": '{"a": 1}'}}, Grammar(json_schema='{"a": 1}')),
        ({"structured_outputs": {"regex": "a+"}}, Grammar(regex="a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Grammar(choice=("a", "b"))),
    ],
)
def test_forms_become_grammars(fields: dict[str, Any], grammar: Grammar | None) -> None:
    assert chat_job(chat(**fields), "id", 9).base.sampling.grammar == grammar


@pytest.mark.parametrize("mode", ["auto", "coupled", "rejection", "block", "match"])
def test_a_mode_is_its_own_and_auto_is_coupled(mode: str) -> None:
    wanted = AcceptanceMode("coupled" if mode == "auto" else mode)
    assert chat_job(chat(acceptance_mode=mode), "id", 9).base.mode is wanted


def test_unknown_fields_are_named_and_harmless_ones_are_not() -> None:
    assert unknown_fields(chat(user="u", seeds=3, tools=[], best_of=1)) == ["user", "seeds"]
    with pytest.raises(InvalidArgumentError, match="tools is not supported"):
        unknown_fields(chat(tools=[{}]))


@pytest.mark.parametrize("field", ["tool_calls", "function_call"])
def test_a_conversation_with_tools_is_refused(field: str) -> None:
    said = {"role": "assistant", "content": None, field: [{"id": "x"}]}
    with pytest.raises(InvalidArgumentError, match=f"messages.0 has {field}"):
        chat_job(ChatBody.model_validate({"messages": [said]}), "id", 9)


def test_usage_counts_each_prompt_once() -> None:
    first = Stats(prompt_tokens=5, cached_tokens=2, emitted_tokens=10)
    first.verified_tokens, first.accepted_tokens = 8, 6
    second = Stats(prompt_tokens=5, emitted_tokens=3)
    usage = usage_of([first, second, first, second], 2)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (10, 26, 36)
    assert usage.prompt_tokens_details.cached_tokens == 4
    details = usage.completion_tokens_details
    assert (details.accepted_prediction_tokens, details.rejected_prediction_tokens) == (12, 4)


def test_the_histogram_tells_how_many_passes_accepted_how_many() -> None:
    stats = Stats(drafted_passes=6, verified_tokens=20, accepted_tokens=9)
    stats.accepted_per_position = [5, 3, 1]
    found = metrics_of(stats)
    assert found is not None
    assert found.speculative_decoding.acceptance_histogram == [1, 2, 2, 1]
    assert found.speculative_decoding.mean_acceptance_length == 2.5
    assert metrics_of(Stats()) is None


def test_offsets_count_characters_of_echo_and_text() -> None:
    telling = CompletionTelling(Head("id", 0, "m"), 1, Wanted(), echoes=["né"])
    assert telling.first(0) is not None
    told = ["a", "", "éééé", "b"]
    pieces = ["a", "éé", "éé", "b"]
    tokens = [
        EmittedToken(i, text, "", TokenLogprob(i, -math.inf, piece.encode()))
        for i, (text, piece) in enumerate(zip(told, pieces, strict=True))
    ]
    offsets = []
    for part in (tokens[:2], tokens[2:]):
        found = telling.part(0, part).choices[0].logprobs
        assert found is not None
        offsets += found.text_offset
        assert found.token_logprobs == [-9999.0] * 2, "JSON has no infinity"
    assert offsets == [2, 3, 5, 7], "by the bytes of the tokens, however late their text is told"


def test_what_nobody_asked_for_is_not_sent() -> None:
    telling = CompletionTelling(Head("id", 0, "m"), 1, Wanted())
    chunk = telling.part(0, [EmittedToken(1, "x", "")])
    assert json.loads(chunk.model_dump_json(exclude_unset=True)) == {
        "id": "id",
        "object": "text_completion",
        "created": 0,
        "model": "m",
        "system_fingerprint": chunk.system_fingerprint,
        "choices": [{"index": 0, "text": "x", "finish_reason": None, "logprobs": None}],
    }
    assert Extras(usage_of([], 1)).fields.keys() == {"usage"}


def test_an_answer_without_an_end_is_a_bug() -> None:
    answer = Answer()
    answer.take(Tokens((EmittedToken(1, "x", ""),)))
    assert answer.text == "x"
    with pytest.raises(InternalError, match="without its last event"):
        _ = answer.stats
