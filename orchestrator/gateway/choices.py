"""The events of several generations as one stream.

Knows engines; knows no HTTP.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence

from orchestrator.engines import Engines
from orchestrator.requests import Event, GenerationRequest
from outrider.errors import OutriderError

AT_ONCE = 8
"""Choices of one HTTP request that are computed at the same time: half of what a verifier takes
unless it is told otherwise."""

MOST_UNSENT = 64
"""Events that wait for a client which reads slowly; then its generations wait, too."""

Numbered = tuple[int, Event]


async def merged(
    engines: Engines, requests: Sequence[GenerationRequest]
) -> AsyncGenerator[Numbered, None]:
    """Each event with the number of its request, as they come; the first error ends all of them.

    When the reader leaves, all generations are given up.
    """
    queue: asyncio.Queue[Numbered | Exception | None] = asyncio.Queue(MOST_UNSENT)
    free = asyncio.Semaphore(AT_ONCE)

    async def run(number: int, request: GenerationRequest) -> None:
        try:
            async with free, contextlib.aclosing(engines.generate(request)) as events:  # type: ignore[type-var]
                async for event in events:
                    await queue.put((number, event))
        except Exception as error:
            if isinstance(error, OutriderError):
                error.request_id = error.request_id or request.request_id
            await queue.put(error)
        else:
            await queue.put(None)

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
