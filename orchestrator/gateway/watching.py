"""Who watches the cluster: one state as JSON, or a stream of them; all watchers share the looks.

Knows the front; what a state says is in `orchestrator.gateway.watched`.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from sse_starlette import EventSourceResponse

from orchestrator.front import Front
from orchestrator.gateway.answering import PING_S, UNREAD_S, unless_gone
from orchestrator.gateway.failing import answered
from orchestrator.gateway.outcomes import Failure
from orchestrator.gateway.watched import Cluster, cluster_of
from outrider.errors import CapacityError, OutriderError, UnavailableError

CLUSTER = "/v1/cluster"
EVENTS = "text/event-stream"

EVERY_S = 1.0
"""From one look to the next."""

LOOK_S = 5.0
"""Longer a look is not waited for."""

LONGEST_WATCH_S = 600.0
"""Then a stream ends, and whoever still reads asks again: nobody keeps a place without reading."""

MOST_WATCHERS = 32


class Watch:
    """States of the cluster for up to `MOST_WATCHERS` at a time. Nothing is kept for one that reads
    slowly: it gets the state of when it comes back.
    """

    def __init__(self, front: Front) -> None:
        self._front = front
        self._watchers = 0
        self._since = time.time()
        self._looking: asyncio.Task[Cluster] | None = None
        self._coming: asyncio.Task[Cluster] | None = None

    async def look(self) -> Cluster:
        """The state now; who asks while somebody looks already gets the same one. Raises
        UnavailableError where there is none in time.
        """
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        # Shielded: others wait for it, too.
        return await asyncio.shield(self._looking)

    async def _look(self) -> Cluster:
        asking = asyncio.ensure_future(self._front.cluster())
        try:
            await asyncio.wait({asking}, timeout=LOOK_S)
            if not asking.done():
                raise UnavailableError(f"the engine told nothing of the cluster in {LOOK_S:g} s")
            view = asking.result()
        finally:
            asking.cancel()
        return cluster_of(
            view,
            self._front.traffic,
            running=self._front.running,
            is_draining=self._front.is_draining,
            at=time.time(),
            since=self._since,
        )

    async def states(self) -> AsyncGenerator[Cluster, None]:
        """The state now and then again and again, until the service drains; raises CapacityError
        where too many watch.
        """
        if self._watchers >= MOST_WATCHERS:
            raise CapacityError(
                f"{MOST_WATCHERS} watch the cluster already, which is the most; try again later",
                retry_after_s=10.0,
            )
        self._watchers += 1
        try:
            ends_at = time.monotonic() + LONGEST_WATCH_S
            state = await self.look()
            yield state
            while not state.draining and time.monotonic() < ends_at:
                # Shielded: others wait for the same look.
                state = await asyncio.shield(self._next())
                yield state
        finally:
            self._watchers -= 1
            if not self._watchers and self._coming is not None:
                self._coming.cancel()

    def _next(self) -> "asyncio.Task[Cluster]":
        if self._coming is None or self._coming.done():
            self._coming = asyncio.create_task(self._look_later())
        return self._coming

    async def _look_later(self) -> Cluster:
        await self._front.wait_for_drain(EVERY_S)
        return await self.look()


def watching(front: Front) -> APIRouter:
    """The path that tells of the cluster."""
    router = APIRouter()
    watch = Watch(front)

    @router.get(
        CLUSTER,
        response_model=Cluster,
        responses={
            200: {"content": {EVENTS: {"schema": {"type": "string"}}}},
            **{status: {"model": Failure} for status in (401, 429, 503)},
        },
        tags=["Service"],
    )
    async def cluster(request: Request) -> Response:
        """The verifier, the drafts and their work; with `Accept: text/event-stream` again and
        again, as server-sent events.
        """
        if EVENTS not in request.headers.get("accept", ""):
            state = await unless_gone(request, watch.look())
            return JSONResponse(state.model_dump())
        states = watch.states()
        try:
            first = await unless_gone(request, anext(states))
        except BaseException:
            await states.aclose()
            raise
        return EventSourceResponse(
            _events(first, states), ping=PING_S, sep="\n", send_timeout=UNREAD_S
        )

    return router


async def _events(
    first: Cluster, states: AsyncGenerator[Cluster, None]
) -> AsyncIterator[dict[str, str]]:
    try:
        yield {"data": first.model_dump_json()}
        async for state in states:
            yield {"data": state.model_dump_json()}
    except OutriderError as error:
        yield {"data": answered(error).failure.model_dump_json()}
    finally:
        await states.aclose()
