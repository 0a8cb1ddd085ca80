"""Who wrote which part of an answer, where it is asked for."""

from typing import Any

import pytest
from gateway.conftest import Front
from support.local import Local
from support.saying import SayingModel, as_bytes

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
ASKED: dict[str, Any] = {"max_tokens": 30, "seed": 5, "ignore_eos": True}


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_the_authors_texts_are_the_answer(front: Front, is_streamed: bool) -> None:
    client = front.openai(await front.open())
    extra = {"return_token_authors": True, "ignore_eos": True}
    answer: Any = await client.chat.completions.create(
        model="", messages=CHAT["messages"], max_tokens=30, seed=5, stream=is_streamed,
        extra_body=extra,
    )  # fmt: skip
    chunks = [chunk async for chunk in answer] if is_streamed else [answer]
    text, authors = "", []
    for chunk in chunks:
        for choice in chunk.choices:
            part = choice.delta if is_streamed else choice.message
            text += part.content or ""
            authors += (choice.model_extra or {}).get("token_authors", [])
    assert "".join(author["text"] for author in authors) == text
    assert len(authors) == 30
    assert {author["draft"] for author in authors} == {"a", None}


async def test_nothing_is_told_of_authors_unless_asked(front: Front) -> None:
    http = front.http(await front.open())
    for path, body in (
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", {"prompt": "hi"}),
    ):
        for wanted in ({}, {"return_token_authors": False}):
            answer = await http.post(path, json={**body, **ASKED, **wanted})
            assert "token_authors" not in answer.text
        told = await http.post(path, json={**body, **ASKED, "return_token_authors": True})
        (choice,) = told.json()["choices"]
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert "".join(author["text"] for author in choice["token_authors"]) == text
        wrong = await http.post(path, json={**body, "return_token_authors": "yes"})
        assert wrong.status_code == 400
        assert wrong.json()["error"]["param"] == "return_token_authors"


async def test_a_character_belongs_to_the_token_that_completes_it(
    front: Front, local: Local
) -> None:
    pieces = as_bytes("a🐎")
    base = await local.gateway(await local.verify(SayingModel(pieces)))
    answer = await front.http(base).post(
        "/v1/completions",
        json={"prompt": "?", "max_tokens": 20, "temperature": 0, "return_token_authors": True},
    )
    authors = answer.json()["choices"][0]["token_authors"]
    assert [author["text"] for author in authors] == ["a", "", "", "", "🐎", ""]
