"""Who may ask, how much, and what every response tells."""

import asyncio
import json
import os
from pathlib import Path

import openai
import pytest
from gateway.conftest import MODEL, Front

from orchestrator.gateway import endpoints, guard
from orchestrator.gateway.keys import Keys
from orchestrator.settings import OrchestratorSettings
from outrider.errors import InvalidArgumentError
from outrider.settings import read_settings

TEXT = {"prompt": "hi", "max_tokens": 2}


async def test_a_key_is_needed_where_there_are_keys(front: Front) -> None:
    base = await front.open(draft=None, api_key=["first-key", "second-key"])
    http = front.http(base)
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic first-key"},
        {"Authorization": "first-key"},
    ):
        for path in ("/v1/models", "/v1/completions", "/tokenize", "/metrics", "/docs/", "/page/"):
            answer = await http.post(path, json=TEXT, headers=headers)
            assert answer.status_code == 401, (path, headers)
            assert answer.json()["error"]["code"] == "invalid_api_key"
            assert answer.headers["WWW-Authenticate"] == "Bearer"
    for path in ("/health", "/", "/docs", "/openapi.json"):
        assert (await http.get(path)).status_code == 200, "a browser has no key"
    assert (await http.head("/health")).status_code == 200
    for key in ("first-key", "second-key"):
        client = front.openai(base, api_key=key)
        assert (await client.completions.create(model=MODEL, prompt="a", max_tokens=2)).choices
    with pytest.raises(openai.AuthenticationError):
        await front.openai(base, api_key="third-key").models.list()


async def test_a_key_that_is_taken_out_of_the_file_is_refused(front: Front, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# ours\nalice-key\n\n  bob-key  \n")
    http = front.http(await front.open(draft=None, api_key_file=file))

    async def status(key: str) -> int:
        headers = {"Authorization": f"Bearer {key}".strip()}
        return (await http.get("/v1/models", headers=headers)).status_code

    assert [await status(key) for key in ("alice-key", "bob-key", "# ours", "")] == [
        200,
        200,
        401,
        401,
    ]
    file.write_text("bob-key\n")
    assert [await status(key) for key in ("alice-key", "bob-key")] == [401, 200]
    times = file.stat()
    file.write_text("eve-key\n")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [await status(key) for key in ("bob-key", "eve-key")] == [401, 200], "as old, as long"
    file.unlink()
    assert [await status(key) for key in ("alice-key", "bob-key")] == [401, 401]
    file.write_text("alice-key\n")
    assert [await status(key) for key in ("alice-key", "bob-key")] == [200, 401]


def test_keys_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        Keys([], tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidArgumentError, match="a key in each line"):
        Keys([], tmp_path / "binary")
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbffirst-key\n")
    assert Keys([], tmp_path / "marked").admit("first-key"), "an editor's mark is no part of it"
    with pytest.raises(InvalidArgumentError, match="printable ASCII") as caught:
        Keys(["schl\u00fcssel"])
    assert "schl" not in str(caught.value)
    (tmp_path / "empty").write_text("# nothing\n")
    assert not Keys([], tmp_path / "empty").admit(""), "a file without keys lets nobody in"


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_beyond_the_limit_is_refused_before_it_is_read(
    front: Front, is_chunked: bool
) -> None:
    http = front.http(await front.open(draft=None, max_body_bytes=2048))
    body = json.dumps({**TEXT, "prompt": "x" * 3000}).encode()

    async def parts():  # type: ignore[no-untyped-def]
        nonlocal sent
        for start in range(0, len(body), 500):
            sent += 1
            yield body[start : start + 500]

    sent = 0
    content = parts() if is_chunked else body
    headers = {"Content-Type": "application/json"}
    answer = await http.post("/v1/completions", content=content, headers=headers)
    assert answer.status_code == 413, answer.text
    assert "send at most 2048" in answer.json()["error"]["message"]
    assert answer.json()["error"]["code"] == "request_too_large"
    assert (await http.post("/v1/completions", json=TEXT)).status_code == 200


async def test_every_response_has_the_requests_id(front: Front) -> None:
    http = front.http(await front.open(draft=None))
    named = await http.post("/v1/completions", json=TEXT, headers={"X-Request-Id": "mine-1"})
    assert named.headers["x-request-id"] == "mine-1"
    assert named.json()["id"] == "cmpl-mine-1"
    for headers in ({}, {"X-Request-Id": "not sane"}, {"X-Request-Id": "x" * 65}):
        answer = await http.post("/v1/completions", json=TEXT, headers=headers)
        assert len(answer.headers["x-request-id"]) == 32
        assert answer.json()["id"] == f"cmpl-{answer.headers['x-request-id']}"
    wrong = await http.post("/v1/completions", json={"prompt": 3})
    assert wrong.headers["x-request-id"]


async def test_requests_of_one_id_are_answered_each(front: Front) -> None:
    """Proxies give one id to many calls, and whoever asks may choose one of another's."""
    http = front.http(await front.open())
    body = {"prompt": "hi", "max_tokens": 40, "ignore_eos": True, "seed": 1}
    headers = {"X-Request-Id": "trace-1"}
    answers = await asyncio.gather(
        *(http.post("/v1/completions", json=body, headers=headers) for _ in range(4))
    )
    assert [answer.status_code for answer in answers] == [200] * 4
    assert len({answer.json()["choices"][0]["text"] for answer in answers}) == 1


async def test_a_bug_is_told_with_the_requests_id_and_breaks_no_connection(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    http = front.http(await front.open(draft=None))
    monkeypatch.setattr(endpoints, "chat_job", lambda *_: 1 / 0)
    chat = {"messages": [{"role": "user", "content": "secret words"}]}
    for _ in range(3):
        answer = await http.post("/v1/chat/completions", json=chat)
        assert answer.status_code == 500
        assert answer.headers["x-request-id"] in answer.json()["error"]["message"]
        assert "division" not in answer.text
    assert (await http.post("/v1/completions", json=TEXT)).status_code == 200


async def test_other_sites_pages_may_not_ask_unless_told(front: Front) -> None:
    asking = {
        "Origin": "https://a.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    closed = front.http(await front.open(draft=None, api_key=["k"]))
    refused = await closed.options("/v1/completions", headers=asking)
    assert "access-control-allow-origin" not in refused.headers
    opened = front.http(
        await front.open(draft=None, api_key=["k"], cors_origin=["https://a.example"])
    )
    allowed = await opened.options("/v1/completions", headers=asking)
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    other = await opened.options(
        "/v1/completions", headers={**asking, "Origin": "https://b.example"}
    )
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize(
    ("flags", "is_served"),
    [
        (("--host", "0.0.0.0", "--allow-plaintext"), False),
        (("--host", "0.0.0.0", "--allow-plaintext", "--no-http"), True),
        (("--host", "0.0.0.0", "--allow-plaintext", "--allow-no-api-key"), True),
        (("--host", "0.0.0.0", "--allow-plaintext", "--api-key", "k"), True),
        (
            (
                "--host",
                "127.0.0.1",
            ),
            True,
        ),
    ],
)
def test_nobody_is_served_from_afar_without_keys_unless_told(
    flags: tuple[str, ...], is_served: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not any(name.startswith("OUTRIDER_") for name in os.environ if name != "OUTRIDER_CONFIG")
    if is_served:
        read_settings(OrchestratorSettings, flags, "orchestrator")
        return
    with pytest.raises(SystemExit):
        read_settings(OrchestratorSettings, flags, "orchestrator")
    told = capsys.readouterr().err
    assert "--api-key-file" in told
    assert "--allow-no-api-key" in told


def test_a_key_is_not_shown_with_the_settings() -> None:
    settings = read_settings(OrchestratorSettings, ("--api-key", "very-secret"), "orchestrator")
    assert "very-secret" not in repr(settings)
    assert "very-secret" not in settings.model_dump_json()


async def test_a_body_that_never_comes_is_not_waited_for(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.2)
    base = await front.open(draft=None)
    reader, writer = await asyncio.open_connection(*base.removeprefix("http://").split(":"))
    head = "POST /v1/completions HTTP/1.1\r\nHost: here\r\nContent-Length: 20\r\n\r\n{"
    writer.write(head.encode())
    answer = await asyncio.wait_for(reader.readuntil(b"}}"), 20)
    writer.close()
    assert b" 408 " in answer.splitlines()[0]
    assert b"nothing more of the body came within 0.2 s" in answer


async def test_an_answer_may_take_longer_than_a_body(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.05)
    base = await front.open("scripted:vocab=62,seed=3,step_ms=100", draft=None)
    http = front.http(base)
    assert (await http.post("/v1/completions", json={**TEXT, "max_tokens": 4})).status_code == 200
