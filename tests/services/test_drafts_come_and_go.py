"""Drafts that join in the middle of an answer, are shared between requests, or have no room for a
while: by the deployment's own rules, which the other tests overrule.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.local import TARGET, Local, Running
from support.processes import free_port
from support.waiting import until

from orchestrator import load, peers, session
from outrider.client import AsyncClient, Result

SLOW_TARGET = f"{TARGET},step_ms=10"
DRAFT = f"{TARGET},drift=0.1"
PROMPT = [1, 2, 3]
LONG = 2000


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked at again and again is looked at every time."""
    monkeypatch.setattr(session, "PLACEMENT_S", 0.0)
    monkeypatch.setattr(peers, "PROBE_EVERY_S", 0.05)
    monkeypatch.setattr(session, "SWAP_S", 0.0)
    monkeypatch.setattr(load, "HOLD_S", 0.0)


async def placed(local: Local, verify: Running, drafts: dict[str, Any]) -> AsyncClient:
    """The client of an orchestrator that shares its drafts out as it likes."""
    return await local.orchestrator(verify, drafts, drafts_per_session=None)


class Reading:
    """An answer that is read until it is stopped."""

    def __init__(self, client: AsyncClient, **options: Any) -> None:
        given: dict[str, Any] = {"max_tokens": LONG, "seed": 3, "temperature": 1.0}
        self._generation = client.generate(PROMPT, **(given | options))
        self.tokens: list[Any] = []
        self.task = asyncio.create_task(self._read())

    @property
    def authors(self) -> set[str]:
        """Whose tokens were accepted so far."""
        return {token.draft for token in self.tokens if token.draft}

    async def _read(self) -> Result:
        async for token in self._generation:
            self.tokens.append(token)
        return await self._generation.result()

    async def stop(self) -> None:
        """Gives the rest up."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def sessions_of(draft: Running) -> Callable[[], int]:
    """How many it has."""
    return lambda: len(draft.scheduler._seats)


@pytest.mark.parametrize("had_drafts", [False, True])
async def test_a_draft_that_joins_in_the_middle_of_an_answer_helps_it(
    local: Local, had_drafts: bool
) -> None:
    port = free_port()
    drafts: dict[str, Any] = {"late": f"127.0.0.1:{port}"}
    if had_drafts:
        drafts["early"] = await local.draft(f"{DRAFT},drift_seed=4")
    client = await placed(local, await local.verify(SLOW_TARGET), drafts)
    answer = Reading(client)
    await until(lambda: len(answer.tokens) > 20, "the answer to begin")
    assert "late" not in answer.authors
    await local.draft(DRAFT, port=port)
    await until(lambda: "late" in answer.authors or answer.task.done(), "its help")
    assert not answer.task.done()
    await answer.stop()


async def test_drafts_are_shared_between_the_requests_of_the_moment(local: Local) -> None:
    drafts = {name: await local.draft(f"{DRAFT},step_ms=4") for name in ("a", "b")}
    client = await placed(local, await local.verify(SLOW_TARGET), drafts)
    both = [sessions_of(draft) for draft in drafts.values()]
    first = Reading(client)
    await until(lambda: [count() for count in both] == [1, 1], "the first one to have both")
    second = Reading(client, seed=4)
    await until(
        lambda: [count() for count in both] == [1, 1] and len(second.tokens) > 20, "one each"
    )
    third = Reading(client, seed=5)
    await until(lambda: sum(count() for count in both) == 3, "the third one to have a draft, too")
    assert all(count() for count in both)
    await third.stop()
    await second.stop()
    await until(lambda: [count() for count in both] == [1, 1], "the first one to have both again")
    assert not first.task.done()
    await first.stop()


async def test_a_draft_without_room_is_asked_again_when_it_has_some(local: Local) -> None:
    draft = await local.draft(DRAFT, max_sessions=1)
    client = await placed(local, await local.verify(SLOW_TARGET), {"small": draft})
    first = Reading(client)
    await until(lambda: "small" in first.authors, "the draft's only place to be taken")
    second = Reading(client, seed=4)
    await until(lambda: len(second.tokens) > 20, "the second one to go on without")
    assert not second.authors
    await first.stop()
    await until(lambda: "small" in second.authors, "its help where the place is free")
    await second.stop()
    answer = await client.generate(PROMPT, max_tokens=8, seed=3).result()
    assert not any(draft.lost for draft in answer.stats.drafts)


async def test_a_draft_of_another_kind_that_joins_takes_part_beside_the_one_there_is(
    local: Local,
) -> None:
    """Prompt lookup costs nothing, so it is nobody's turn and everybody's help."""
    port = free_port()
    drafts: dict[str, Any] = {
        "a": await local.draft(f"{DRAFT},step_ms=4"),
        "b": await local.draft(f"{DRAFT},step_ms=4"),
        "lookup": f"127.0.0.1:{port}",
    }
    client = await placed(local, await local.verify(SLOW_TARGET), drafts)
    answers = [Reading(client, seed=seed) for seed in (3, 4)]
    await until(lambda: all(len(a.tokens) > 20 for a in answers), "both answers to begin")
    lookup = await local.draft("ngram:", port=port)
    await until(lambda: sessions_of(lookup)() == 2, "its part in both")
    both = [sessions_of(drafts[name]) for name in "ab"]
    await until(lambda: [count() for count in both] == [1, 1], "one of the others for each")
    for answer in answers:
        await answer.stop()


async def test_a_draft_that_comes_back_takes_its_share_again(local: Local) -> None:
    port = free_port()
    drafts: dict[str, Any] = {
        "steady": await local.draft(f"{DRAFT},step_ms=8"),
        "back": f"127.0.0.1:{port}",
    }
    client = await placed(local, await local.verify(SLOW_TARGET), drafts)
    answers = [Reading(client, seed=seed) for seed in (3, 4)]
    await until(lambda: sessions_of(drafts["steady"])() == 2, "both on the one there is")
    back = await local.draft(f"{DRAFT},step_ms=8", port=port)
    both = [sessions_of(draft) for draft in (drafts["steady"], back)]
    await until(lambda: [count() for count in both] == [1, 1], "one for each")
    for answer in answers:
        await answer.stop()
