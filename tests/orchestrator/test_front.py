"""What a front lets in while it is told to drain."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from fake_session import request_of
from support.waiting import until

from orchestrator.engines import Engines
from orchestrator.front import Front
from orchestrator.gateway.choices import merged
from orchestrator.metrics import FrontMetrics
from orchestrator.requests import Event, Finished, GenerationRequest, Stats
from outrider.errors import CapacityError, UnavailableError
from outrider.types import FinishReason


class Slow:
    """Engines whose answers end when they are let."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_end = asyncio.Event()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self.begun += 1
        await self.may_end.wait()
        yield Finished(FinishReason.LENGTH, Stats(), ())


async def test_a_request_that_was_let_in_is_answered_whole() -> None:
    """Its last choices, too, which wait for room when the service is told to end."""
    engines = Slow()
    front = Front(cast(Engines, engines), FrontMetrics())
    requests = [request_of(request_id=str(number)) for number in range(20)]

    async def read() -> int:
        async with contextlib.aclosing(merged(front, requests)) as events:
            return len([event async for event in events])

    reading = asyncio.create_task(read())
    await until(lambda: engines.begun > 0, "the first choices")
    draining = asyncio.create_task(front.drain())
    await until(lambda: front.is_draining, "the order to end")
    assert engines.begun < 20
    for late in (front.generate(request_of()), merged(front, [request_of()])):
        with pytest.raises(UnavailableError, match="shutting down"):
            await anext(cast(Any, late))
    assert not draining.done()
    engines.may_end.set()
    assert await asyncio.wait_for(reading, 10) == 20
    await asyncio.wait_for(draining, 10)


class Tight:
    """Engines with room for one, which is free again a moment after its answer."""

    def __init__(self, answer_s: float = 0.0) -> None:
        self.is_taken = False
        self.asked = 0
        self._answer_s = answer_s

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self.asked += 1
        if self.is_taken:
            raise CapacityError("full", retry_after_s=1.0)
        self.is_taken = True
        await asyncio.sleep(self._answer_s)
        asyncio.get_running_loop().call_later(0.1, self.free)
        yield Finished(FinishReason.LENGTH, Stats(), ())

    def free(self) -> None:
        self.is_taken = False


async def test_a_choice_waits_for_room_that_is_given_back_late() -> None:
    front = Front(cast(Engines, Tight()), FrontMetrics())
    requests = [request_of(request_id=str(number)) for number in range(4)]
    async with contextlib.aclosing(merged(front, requests)) as events:
        assert len([event async for event in events]) == 4


async def test_a_choice_that_finds_no_room_beside_nobody_is_refused() -> None:
    engines = Tight()
    engines.is_taken = True
    front = Front(cast(Engines, engines), FrontMetrics())
    async with contextlib.aclosing(merged(front, [request_of()])) as events:
        with pytest.raises(CapacityError):
            await anext(events)


async def test_choices_that_found_no_room_do_not_ask_all_the_time() -> None:
    engines = Tight(answer_s=0.2)
    front = Front(cast(Engines, engines), FrontMetrics())
    requests = [request_of(request_id=str(number)) for number in range(8)]
    async with contextlib.aclosing(merged(front, requests)) as events:
        assert len([event async for event in events]) == 8
    assert engines.asked < 100, "a few times for each answer of another one"
