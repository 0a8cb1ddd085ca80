"""What Open WebUI, LiteLLM and `llm` send, as their sources have it."""

import asyncio
import json
from typing import Any

import httpx
from gateway.conftest import MODEL, Front


async def events(http: httpx.AsyncClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON of each event, read as line-based clients read it; the last one is the word DONE."""
    found: list[dict[str, Any]] = []
    async with http.stream("POST", path, json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        is_done = False
        async for line in answer.aiter_lines():
            if not line or line.startswith(":"):
                continue
            assert not is_done, "nothing follows DONE"
            assert line.startswith("data: ")
            data = line.removeprefix("data: ")
            is_done = data == "[DONE]"
            if not is_done:
                found.append(json.loads(data))
    assert is_done
    return found


async def test_open_webui_lists_models_chats_and_asks_for_titles_at_once(front: Front) -> None:
    http = front.http(
        await front.open(api_key=["sk-webui"]), headers={"Authorization": "Bearer sk-webui"}
    )
    (model,) = (await http.get("/v1/models")).json()["data"]
    chat = {
        "stream": True,
        "model": model["id"],
        "messages": [{"role": "user", "content": "hello"}],
        "stream_options": {"include_usage": True},
        "max_tokens": 24,
    }
    titles = [
        {
            "model": model["id"],
            "messages": [{"role": "user", "content": f"Give {what} for this chat."}],
            "stream": False,
            "max_completion_tokens": 12,
            "metadata": {"task": what},
        }
        for what in ("a title", "tags", "follow-ups")
    ]
    told, *answers = await asyncio.gather(
        events(http, "/v1/chat/completions", chat),
        *(http.post("/v1/chat/completions", json=body) for body in titles),
    )
    assert told[-1]["usage"]["completion_tokens"] == 24
    assert told[-2]["choices"][0]["finish_reason"] == "length"
    for answer in answers:
        body = answer.json()
        assert answer.status_code == 200
        assert body["choices"][0]["message"]["content"]
        assert body["usage"]["completion_tokens"] == 12


async def test_litellm_sends_its_extras_along(front: Front) -> None:
    http = front.http(await front.open())
    body = {
        "model": MODEL,
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "yes?"},
            {"role": "user", "content": [{"type": "text", "text": "go on"}]},
        ],
        "max_tokens": 10,
        "temperature": 0.2,
        "n": 1,
        "stop": None,
        "user": "someone",
        "seed": None,
        "logit_bias": {},
        "response_format": {"type": "text"},
        "top_k": 40,
        "extra_headers": {},
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    told = await events(http, "/v1/chat/completions", body)
    assert told[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert {chunk["object"] for chunk in told} == {"chat.completion.chunk"}
    assert all("usage" not in chunk or chunk["usage"] is None for chunk in told[:-1])
    assert told[-1]["choices"] == []


async def test_llm_completes_and_chats(front: Front) -> None:
    http = front.http(await front.open())
    completion = {"model": MODEL, "prompt": "once", "stream": True, "max_tokens": 8, "logprobs": 2}
    told = await events(http, "/v1/completions", completion)
    assert "".join(c["choices"][0]["text"] for c in told)
    assert {chunk["object"] for chunk in told} == {"text_completion"}
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}
    answer = (await http.post("/v1/chat/completions", json={**chat, "stream": False})).json()
    assert answer["object"] == "chat.completion"


async def test_line_based_benchmarks_read_usage_and_metrics_of_the_last_event(front: Front) -> None:
    http = front.http(await front.open())
    body = {
        "model": MODEL,
        "prompt": "once",
        "stream": True,
        "max_tokens": 40,
        "ignore_eos": True,
        "temperature": 0.0,
        "stream_options": {"include_usage": True},
        "repetition_penalty": 1.0,
    }
    told = await events(http, "/v1/completions", body)
    assert told[-1]["usage"]["completion_tokens"] == 40
    assert told[-1]["metrics"]["speculative_decoding"]["num_accepted_draft_tokens"] > 0
