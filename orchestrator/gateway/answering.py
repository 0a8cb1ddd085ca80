"""A job's answers as one JSON document or as a stream, given up when the client leaves."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sse_starlette import EventSourceResponse

from orchestrator.front import Front
from orchestrator.gateway.bodies import Generation
from orchestrator.gateway.choices import Numbered, merged
from orchestrator.gateway.extras import Extras, extras_of
from orchestrator.gateway.failing import answered
from orchestrator.gateway.gathered import Answer
from orchestrator.gateway.reading import Job
from orchestrator.requests import EmittedToken, Finished, Started, Tokens
from outrider.errors import InternalError, OutriderError, RequestCancelledError
from outrider.telemetry.logs import get_logger

T = TypeVar("T")
DONE = "[DONE]"
PING_S = 15
"""A comment goes out so often while nothing else does: proxies cut lines that are silent."""

UNREAD_S = 60
"""A client that takes nothing for so long has given up: it holds a place that others want."""


class Telling(Protocol):
    """How the answers of an endpoint look."""

    def whole(self, answers: Sequence[Answer], extras: Extras) -> BaseModel:
        """All choices at once."""
        ...

    def first(self, index: int) -> BaseModel | None:
        """What a choice begins with."""
        ...

    def part(self, index: int, tokens: Sequence[EmittedToken]) -> BaseModel:
        """More of a choice."""
        ...

    def last(self, index: int, end: Finished) -> BaseModel:
        """How a choice ended."""
        ...

    def closing(self, extras: Extras) -> BaseModel:
        """Behind all choices of a stream."""
        ...


async def respond(
    request: Request, front: Front, job: Job, body: Generation, telling: Telling
) -> Response:
    """The response; raises what goes wrong before its first byte."""
    if not body.stream:
        return await unless_gone(request, _whole(front, job, telling))
    events = merged(front, job.requests())
    try:
        first = await unless_gone(request, _next(events))
    except BaseException:
        await events.aclose()
        raise
    options = body.stream_options
    chunks = _chunks(
        first,
        events,
        job,
        telling,
        has_usage=options is not None and bool(options.include_usage),
    )
    return EventSourceResponse(chunks, ping=PING_S, sep="\n", send_timeout=UNREAD_S)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives; given up, with RequestCancelledError, when the client leaves before."""
    job = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_has_left(request))
    try:
        await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not job.done():
            raise RequestCancelledError("the client closed the connection")
        return job.result()
    finally:
        for task in (job, gone):
            task.cancel()
        await asyncio.gather(job, gone, return_exceptions=True)


async def _has_left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _whole(front: Front, job: Job, telling: Telling) -> Response:
    answers = [Answer() for _ in range(job.count)]
    async with contextlib.aclosing(merged(front, job.requests())) as events:
        async for index, event in events:
            answers[index].take(event)
    outcome = telling.whole(answers, extras_of(answers, job.n))
    return JSONResponse(outcome.model_dump(exclude_unset=True))


async def _next(events: AsyncIterator[Numbered]) -> Numbered:
    try:
        return await anext(events)
    except StopAsyncIteration:
        raise InternalError("the engine ended an answer without any event") from None


async def _chunks(
    first: Numbered,
    events: AsyncGenerator[Numbered, None],
    job: Job,
    telling: Telling,
    *,
    has_usage: bool,
) -> AsyncIterator[dict[str, str]]:
    """The data of each event. Once it has begun, an error is told as one, too."""
    answers = [Answer() for _ in range(job.count)]

    def told(numbered: Numbered) -> BaseModel | None:
        index, event = numbered
        if not isinstance(event, Tokens):
            answers[index].take(event)
        if isinstance(event, Started):
            return telling.first(index)
        if isinstance(event, Tokens):
            return telling.part(index, event.tokens)
        return telling.last(index, event)

    try:
        opening = told(first)
        if opening is not None:
            yield _data(opening)
        async for numbered in events:
            chunk = told(numbered)
            if chunk is not None:
                yield _data(chunk)
        if has_usage:
            yield _data(telling.closing(extras_of(answers, job.n)))
    except OutriderError as error:
        yield {"data": answered(error).failure.model_dump_json()}
    except Exception as error:
        get_logger().error("unexpected_error", request_id=job.base.request_id, exc_info=error)
        bug = InternalError("the endpoint failed; its log has the details")
        yield {"data": answered(bug).failure.model_dump_json()}
    finally:
        await events.aclose()
    yield {"data": DONE}


def _data(chunk: BaseModel) -> dict[str, str]:
    return {"data": chunk.model_dump_json(exclude_unset=True)}
