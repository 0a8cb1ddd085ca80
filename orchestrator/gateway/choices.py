"""The events of several generations as one stream.

Knows the front; knows no HTTP.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncGenerator, Sequence

from orchestrator.front import Front, Generate
from orchestrator.requests import Event, GenerationRequest
from outrider.errors import CapacityError, OutriderError

AT_ONCE = 8
"""Choices of one HTTP request that are computed at the same time: half of what a verifier takes
unless it is told otherwise."""

MOST_UNSENT = 64
"""Events that wait for a client which reads slowly; then its generations wait, too."""

FREED_WITHIN_S = 2.0
"""So long after an answer the room that it had may still be taken."""

LOOK_AGAIN_S = 0.05

Numbered = tuple[int, Event]


class _Places:
    """The choices of one HTTP request that are being answered, or ask for room: `taken` of them."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(AT_ONCE)
        self.taken = 0
        self._answered_at = -math.inf
        self._answered = asyncio.Event()

    @property
    def may_become_free(self) -> bool:
        """Whether one that found no room beside nobody may do so yet: the room of one that was
        answered is given back a moment later.
        """
        return self.taken > 1 or time.monotonic() - self._answered_at < FREED_WITHIN_S

    def leave(self, *, is_answered: bool) -> None:
        """One found no room, or was answered: then those that found none may look again."""
        self.taken -= 1
        if is_answered:
            self._answered_at = time.monotonic()
            self._answered.set()
            self._answered = asyncio.Event()

    async def wait_for_room(self) -> None:
        """Until another one is answered, or what the last one gave back may have come."""
        left = asyncio.ensure_future(self._answered.wait())
        try:
            await asyncio.wait({left}, timeout=None if self.taken else LOOK_AGAIN_S)
        finally:
            left.cancel()


async def merged(
    front: Front, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[Numbered, None]:
    """Each event with the number of its request, as they come; the first error ends all of them.

    When the reader leaves, all generations are given up.
    """
    with front.admission() as generate:
        events = _merged(generate, requests)
        async with contextlib.aclosing(events):
            async for event in events:
                yield event


async def _merged(
    generate: Generate, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[Numbered, None]:
    queue: asyncio.Queue[Numbered | Exception | None] = asyncio.Queue(MOST_UNSENT)
    places = _Places()

    async def run(number: int, request: GenerationRequest) -> None:
        try:
            async with places.free:
                while not await answer(number, request):
                    await places.wait_for_room()
        except Exception as error:
            if isinstance(error, OutriderError):
                error.request_id = error.request_id or request.request_id
            await queue.put(error)
        else:
            await queue.put(None)

    async def answer(number: int, request: GenerationRequest) -> bool:
        """False where there is no room beside others of the same HTTP request."""
        has_begun = is_answered = False
        places.taken += 1
        try:
            async with contextlib.aclosing(generate(request)) as events:  # type: ignore[type-var]
                async for event in events:
                    has_begun = True
                    await queue.put((number, event))
            is_answered = True
        except CapacityError:
            if has_begun or not places.may_become_free:
                raise
        finally:
            places.leave(is_answered=is_answered)
        return is_answered

    tasks = [asyncio.create_task(run(*numbered)) for numbered in enumerate(requests)]
    try:
        for _ in tasks:
            while (found := await queue.get()) is not None:
                if isinstance(found, Exception):
                    raise found
                yield found
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
