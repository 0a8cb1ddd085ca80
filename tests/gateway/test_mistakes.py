"""Whatever goes wrong is told in OpenAI's shape, with the right status, and breaks nothing."""

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from gateway.conftest import MODEL, Front

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
TEXT: dict[str, Any] = {"prompt": "hi", "max_tokens": 4}

MISTAKES: list[tuple[str, dict[str, Any], str, str | None]] = [
    ("chat", {"messages": []}, "at least 1 item", "messages"),
    ("chat", {"messages": [{"role": "pope", "content": "x"}]}, "'system', 'developer'", None),
    ("chat", {"messages": [{"role": "user", "content": 3}]}, "got 3", None),
    ("chat", {"temperature": "hot"}, "got 'hot'", "temperature"),
    ("chat", {"temperature": -1}, "temperature is -1", "temperature"),
    ("chat", {"top_p": 0}, "top_p is 0", "top_p"),
    ("chat", {"max_tokens": 0}, "max_tokens is 0; give at least 1", "max_tokens"),
    ("chat", {"max_tokens": True}, "valid integer", "max_tokens"),
    ("chat", {"max_completion_tokens": 5}, "give one of them", "max_tokens"),
    ("chat", {"top_logprobs": 2}, "set logprobs", "top_logprobs"),
    ("chat", {"logprobs": True, "top_logprobs": 21}, "give 0 to 20", "logprobs"),
    ("chat", {"n": 0}, "greater than or equal to 1", "n"),
    ("chat", {"n": 129}, "less than or equal to 128", "n"),
    ("chat", {"tools": [{"type": "function"}]}, "tools is not supported", "tools"),
    ("chat", {"tool_choice": "required"}, "tool_choice is not supported", None),
    ("chat", {"guided_regex": "a"}, "guided_regex is not supported", None),
    ("chat", {"response_format": {"type": "json_schema"}}, "without a schema", "response_format"),
    ("chat", {"response_format": {"type": "yaml"}}, "'json_object'", None),
    ("chat", {"structured_outputs": {"regex": "a", "choice": ["b"]}}, "2 forms", None),
    ("chat", {"structured_outputs": {"regex": "("}}, "regex", None),
    ("chat", {"logit_bias": {"x": 1}}, "'x'; give token ids", "logit_bias"),
    ("chat", {"logit_bias": {"99": 1}}, "token id 99; the model knows 0 to 61", "logit_bias"),
    ("chat", {"logit_bias": {"1": 101}}, "give a number from -100 to 100", "logit_bias"),
    ("chat", {"seed": 2**64}, "seed is", "seed"),
    ("chat", {"stop": [""]}, "stop string 0 has 0", "stop"),
    ("chat", {"acceptance_mode": "guess"}, "'coupled'", "acceptance_mode"),
    ("chat", {"width": 0}, "width is 0", "width"),
    ("text", {"prompt": ""}, "a prompt is empty", None),
    ("text", {"prompt": []}, "a prompt is empty", None),
    ("text", {"prompt": [[1], []]}, "a prompt is empty", None),
    ("text", {"prompt": [62]}, "token id 62", None),
    ("text", {"prompt": None}, "prompt", "prompt"),
    ("text", {"prompt": ["a"] * 65, "n": 2}, "at most 128 answers", None),
    ("text", {"echo": True, "logprobs": 1}, "echo is given with logprobs", "echo"),
    ("text", {"best_of": 2}, "best_of is not supported", None),
    ("text", {"suffix": "x"}, "suffix is not supported", None),
    ("text", {"max_tokens": 2**32}, "less than 2^32", "max_tokens"),
    ("text", {"top_k": 10**30}, "top_k is", "top_k"),
    ("text", {"max_drafts": -1}, "max_drafts is -1", "max_drafts"),
    ("text", {"prompt": "a\ud800"}, "half of a character", "prompt"),
    ("text", {"prompt": ["a", "\ud800"]}, "got ['a'", None),
    ("text", {"stop": "\udfff"}, "half of a character", "stop"),
    ("text", {"structured_outputs": {"regex": "\ud800"}}, "half of a character", None),
    ("text", {"structured_outputs": {"regex": "a", "grammar": "b"}}, "Extra inputs", None),
    ("text", {"stream_options": {"continuous_usage_stats": True}}, "is not supported", None),
    ("text", {"prompt": [None] * 300_000}, "got [None", None),
    ("text", {"allowed_token_ids": [1] * 5000}, "at most 4096 items", "allowed_token_ids"),
    ("chat", {"messages": CHAT["messages"] * 9000}, "at most 8192", "messages"),
    ("text", {"max_tokens": -1}, "max_tokens is -1", "max_tokens"),
    ("text", {"prompt": "x" * 9000}, "context", None),
]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_mistakes_are_named_and_nothing_is_left_open(front: Front, is_streamed: bool) -> None:
    http = front.http(await front.open())
    for kind, fields, words, param in MISTAKES:
        path = "/v1/chat/completions" if kind == "chat" else "/v1/completions"
        body = {**(CHAT if kind == "chat" else TEXT), **fields, "stream": is_streamed}
        # What httpx cannot spell, JSON can.
        headers = {"Content-Type": "application/json"}
        answer = await http.post(path, content=json.dumps(body), headers=headers)
        assert answer.status_code == 400, (str(fields)[:200], answer.text)
        error = answer.json()["error"]
        assert words in error["message"], (fields, error)
        assert error["type"] == "invalid_request_error"
        if param is not None:
            assert error["param"] == param, (fields, error)
    assert (await http.post("/v1/completions", json=TEXT)).status_code == 200


async def test_fields_that_mean_nothing_here_are_ignored(front: Front) -> None:
    http = front.http(await front.open())
    extras = {
        "user": "u",
        "metadata": {"a": 1},
        "parallel_tool_calls": True,
        "store": False,
        "tools": [],
        "tool_choice": "auto",
        "suffix": None,
        "best_of": 1,
        "priority": 3,
        "skip_special_tokens": True,
        "add_generation_prompt": True,
        "anything": ["else"],
    }
    plain = await http.post("/v1/chat/completions", json={**CHAT, "seed": 1})
    answer = await http.post("/v1/chat/completions", json={**CHAT, "seed": 1, **extras})
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"] == plain.json()["choices"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"{" * 2000])
async def test_a_body_that_is_no_object_is_refused(front: Front, body: bytes) -> None:
    http = front.http(await front.open(draft=None))
    headers = {"Content-Type": "application/json"}
    for path in ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"):
        answer = await http.post(path, content=body, headers=headers)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["message"]


async def test_paths_and_methods_that_do_not_exist(front: Front) -> None:
    http = front.http(await front.open(draft=None))
    for method, path, status in (
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/chat/completions", 405),
        ("DELETE", "/v1/models", 405),
    ):
        answer = await http.request(method, path)
        assert answer.status_code == status
        assert "/docs" in answer.json()["error"]["message"]


async def test_another_model_is_not_found(front: Front) -> None:
    base = await front.open(draft=None)
    with pytest.raises(openai.NotFoundError, match="'gpt-5' is not served here") as caught:
        await front.openai(base).chat.completions.create(model="gpt-5", **CHAT)
    assert caught.value.code == "model_not_found"
    assert (await front.http(base).get("/v1/models/gpt-5")).status_code == 404


async def test_a_full_service_says_when_to_try_again(front: Front) -> None:
    base = await front.open(draft=None, max_requests=1)
    http = front.http(base)
    slow = {**TEXT, "max_tokens": 4000, "ignore_eos": True, "stream": True}
    async with http.stream("POST", "/v1/completions", json=slow) as streaming:
        lines = streaming.aiter_lines()
        assert (await anext(lines)).startswith("data: ")
        refused = await http.post("/v1/completions", json=TEXT)
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) >= 1
        assert refused.json()["error"]["type"] == "rate_limit_error"
        was_refused = asyncio.Event()

        async def note(response: httpx.Response) -> None:
            if response.status_code == 429:
                was_refused.set()

        listening = httpx.AsyncClient(event_hooks={"response": [note]})
        client = front.openai(base, max_retries=5, http_client=listening)
        asking = asyncio.create_task(client.completions.create(model=MODEL, **TEXT))
        await was_refused.wait()
    assert (await asking).choices[0].text, "OpenAI's client tries again by itself"


async def test_choices_wait_for_room_that_others_of_their_request_have(front: Front) -> None:
    verify = await front.local.verify(MODEL, max_sessions=2)
    base = await front.local.gateway(verify, max_requests=3)
    http = front.http(base)
    answer = await http.post("/v1/completions", json={**TEXT, "n": 9, "seed": 1})
    assert answer.status_code == 200, answer.text
    assert [choice["index"] for choice in answer.json()["choices"]] == list(range(9))


async def test_what_never_fits_is_not_asked_for_again(front: Front) -> None:
    verify = await front.local.verify(MODEL, kv_tokens=256)
    http = front.http(await front.local.gateway(verify))
    answer = await http.post("/v1/completions", json={**TEXT, "max_tokens": 4000})
    assert answer.status_code == 429
    assert answer.headers["x-should-retry"] == "false"
    assert "Retry-After" not in answer.headers


async def test_a_verifier_that_is_not_there_is_unavailable(front: Front) -> None:
    base = await front.local.gateway("127.0.0.1:9")
    http = front.http(base)
    for method, path, body in (
        ("POST", "/v1/completions", TEXT),
        ("POST", "/v1/chat/completions", {**CHAT, "stream": True}),
        ("GET", "/v1/models", None),
        ("POST", "/tokenize", {"prompt": "x"}),
    ):
        answer = await http.request(method, path, json=body)
        assert answer.status_code == 503, path
        assert "Retry-After" in answer.headers
        assert answer.json()["error"]["code"] == "unavailable"
    health = await http.get("/health")
    assert health.status_code == 503
    assert "verify service" in health.json()["error"]["message"]


async def test_a_verifier_that_dies_ends_a_stream_with_an_error(front: Front) -> None:
    verify = await front.local.verify(f"{MODEL},step_ms=20")
    base = await front.local.gateway(verify, max_resumes=0)
    stream = await front.openai(base).completions.create(
        model=f"{MODEL},step_ms=20",
        prompt="hi",
        max_tokens=4000,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    told = ""
    with pytest.raises(openai.APIError) as caught:
        async for chunk in stream:
            told += chunk.choices[0].text
            if len(told) == 5:
                await verify.server.stop(None)
    assert told
    assert "broke" in str(caught.value)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_client_that_leaves_frees_what_it_had(front: Front, is_streamed: bool) -> None:
    verify = await front.local.verify(f"{MODEL},step_ms=5", max_sessions=1)
    base = await front.local.gateway(verify, max_requests=1)
    http = front.http(base)
    slow = {**TEXT, "max_tokens": 8000, "ignore_eos": True, "stream": is_streamed}
    if is_streamed:
        async with http.stream("POST", "/v1/completions", json=slow) as streaming:
            assert (await anext(streaming.aiter_lines())).startswith("data: ")
    else:
        with pytest.raises(httpx.ReadTimeout):
            await http.post("/v1/completions", json=slow, timeout=0.3)
    for _ in range(200):
        answer = await http.post("/v1/completions", json=TEXT)
        if answer.status_code == 200:
            return
        assert answer.status_code == 429
        await asyncio.sleep(0.02)
    pytest.fail("the place of a client that left never became free")
