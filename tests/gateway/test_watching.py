"""/v1/cluster: what is told of the cluster, once or again and again."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from gateway.conftest import DRAFT, MODEL, Front
from support.local import Local
from support.waiting import until_asked

from orchestrator.gateway import watching
from orchestrator.server import build
from orchestrator.settings import OrchestratorSettings

EVENTS = {"Accept": "text/event-stream"}
TEXT = {"prompt": "hi", "max_tokens": 30, "ignore_eos": True}


async def states(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Each state of a stream."""
    async for line in response.aiter_lines():
        if line.startswith("data:"):
            yield json.loads(line[5:])


async def test_a_state_has_the_services_and_their_work(front: Front) -> None:
    http = front.http(await front.open())
    before = (await http.get("/v1/cluster")).json()
    assert before["object"] == "cluster"
    assert (before["verify"]["model"], before["verify"]["usable"]) == (MODEL, True)
    (draft,) = before["drafts"]
    assert (draft["name"], draft["model"], draft["problem"]) == ("a", DRAFT, None)
    assert draft["round_trip_ms"] > 0
    assert draft["step_ms"] is None, "it has not worked yet"
    assert before["work"]["target_passes"] == 0
    usage = (await http.post("/v1/completions", json=TEXT)).json()["usage"]
    after = (await http.get("/v1/cluster")).json()
    work, details = after["work"], usage["completion_tokens_details"]
    assert work["emitted_tokens"] == usage["completion_tokens"] == 30
    assert work["accepted_tokens"] == details["accepted_prediction_tokens"] > 0
    assert (
        work["verified_tokens"] - work["accepted_tokens"] == details["rejected_prediction_tokens"]
    )
    assert sum(work["accepted_per_position"]) == work["accepted_tokens"]
    assert work["accepted_per_position"][0] <= work["drafted_passes"] <= work["target_passes"]
    assert work["running_requests"] == 0
    (draft,) = after["drafts"]
    assert draft["written_tokens"] == draft["accepted_tokens"] == work["accepted_tokens"]
    assert draft["drafted_tokens"] >= draft["accepted_tokens"]
    assert draft["step_ms"] >= 0


async def test_a_stream_tells_of_an_answer_while_it_is_written(front: Front) -> None:
    http = front.http(await front.open(f"{MODEL},step_ms=20", draft=None))
    async with http.stream("GET", "/v1/cluster", headers=EVENTS) as watched:
        assert watched.headers["content-type"].startswith("text/event-stream")
        seen = states(watched)
        assert (await anext(seen))["work"]["emitted_tokens"] == 0
        body = {**TEXT, "max_tokens": 4000, "stream": True}
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            counts = []
            async for state in seen:
                counts.append(state["work"]["emitted_tokens"])
                if len({*counts} - {0}) == 2:
                    break
            assert state["work"]["running_requests"] == 1
            assert counts == sorted(counts)


async def test_watchers_are_bounded_and_one_that_leaves_makes_room(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MOST_WATCHERS", 2)
    http = front.http(await front.open(draft=None))

    async def status() -> int:
        async with http.stream("GET", "/v1/cluster", headers=EVENTS) as asked:
            return asked.status_code

    async with http.stream("GET", "/v1/cluster", headers=EVENTS) as first:
        assert first.status_code == 200
        async with http.stream("GET", "/v1/cluster", headers=EVENTS) as second:
            assert second.status_code == 200
            refused = await http.get("/v1/cluster", headers=EVENTS)
            assert refused.status_code == 429
            assert refused.headers["Retry-After"] == "10"
            assert "2 watch the cluster" in refused.json()["error"]["message"]
            assert (await http.get("/v1/cluster")).status_code == 200, "once is no watching"

        async def has_room() -> bool:
            return await status() == 200

        await until_asked(has_room, "room for another watcher")


async def test_all_watchers_share_a_look(front: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    look = watching.Watch.look

    async def counted(self: watching.Watch) -> Any:
        nonlocal looks
        looks += 1
        return await look(self)

    monkeypatch.setattr(watching.Watch, "look", counted)
    http = front.http(await front.open(draft=None))

    async def watch(rounds: int) -> None:
        async with http.stream("GET", "/v1/cluster", headers=EVENTS) as watched:
            seen = states(watched)
            for _ in range(rounds):
                await anext(seen)

    await asyncio.gather(*(watch(3) for _ in range(6)))
    assert looks <= 6 + 4, "each looks once when it comes, then all look together"


async def test_a_stream_ends_when_the_service_drains(local: Local) -> None:
    verify = await local.verify(MODEL)
    settings = OrchestratorSettings(
        port=0, http_port=0, ray="local", verify=verify.address, draft=[]
    )
    service = await build(settings)
    assert service.gateway is not None
    base = f"http://{service.gateway.address}"
    try:
        async with (
            httpx.AsyncClient(base_url=base, timeout=60) as http,
            http.stream("GET", "/v1/cluster", headers=EVENTS) as watched,
        ):
            seen = states(watched)
            assert not (await anext(seen))["draining"]
            await service.drain()
            assert [state["draining"] async for state in seen][-1] is True
    finally:
        await service.stop()


async def test_the_cluster_is_told_to_those_with_a_key_only(front: Front) -> None:
    http = front.http(await front.open(draft=None, api_key=["k"]))
    for headers in ({}, EVENTS):
        assert (await http.get("/v1/cluster", headers=headers)).status_code == 401
    good = {"Authorization": "Bearer k"}
    assert (await http.get("/v1/cluster", headers=good)).status_code == 200
