"""A link to a peer that misbehaves: one error in the inbox, then silence, and nothing is left."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from support.waiting import until

from outrider.errors import InvalidArgumentError, OutriderError, UnavailableError
from outrider.v1 import verify_pb2
from outrider.wire.links import MAX_UNSENT, Arrival, Link

REQUEST = verify_pb2.VerifyRequest(close=verify_pb2.VerifyClose())
RESPONSE = verify_pb2.VerifyResponse(opened=verify_pb2.VerifyOpened(cached_tokens=4))


class Call:
    """What gRPC would return: an async iterator with cancel."""

    def __init__(self, responses: AsyncIterator[Any]) -> None:
        self._responses = responses
        self.is_cancelled = False

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._responses

    def cancel(self) -> None:
        self.is_cancelled = True


class Bench:
    """A link to a peer that answers with `responses` and reads requests when told to."""

    def __init__(
        self,
        responses: Callable[[], AsyncIterator[Any]],
        decode: Callable[[Any], object] = lambda response: response,
    ) -> None:
        self.inbox: asyncio.Queue[Arrival] = asyncio.Queue(4)
        self.requests: AsyncIterator[Any] | None = None

        def start(requests: AsyncIterator[Any]) -> Call:
            self.requests = requests
            return Call(responses())

        self.link: Link[verify_pb2.VerifyRequest] = Link("peer", "peer", start, decode, self.inbox)

    async def arrival(self) -> Arrival:
        return await asyncio.wait_for(self.inbox.get(), 5)

    async def error(self) -> OutriderError:
        error = (await self.arrival()).error
        assert error is not None
        return error


async def nothing() -> AsyncIterator[Any]:
    return
    yield


async def silence() -> AsyncIterator[Any]:
    await asyncio.Event().wait()
    yield


async def one() -> AsyncIterator[Any]:
    yield RESPONSE
    await asyncio.Event().wait()


async def test_what_arrives_is_decoded_and_counted() -> None:
    bench = Bench(one, decode=lambda response: response.opened.cached_tokens)
    arrival = await bench.arrival()
    assert (arrival.link, arrival.message, arrival.error) == (bench.link, 4, None)
    assert bench.link.messages == 1
    assert bench.link.wire_bytes == RESPONSE.ByteSize()
    bench.link.close()


async def test_a_peer_that_closes_is_unavailable() -> None:
    bench = Bench(nothing)
    assert isinstance(await bench.error(), UnavailableError)


async def test_a_peer_that_breaks_the_protocol_ends_the_link_with_what_is_wrong() -> None:
    def decode(response: Any) -> object:
        raise InvalidArgumentError("nonsense")

    bench = Bench(one, decode)
    assert "nonsense" in (await bench.error()).message
    assert bench.link._call.is_cancelled


async def test_a_lost_connection_names_the_peer() -> None:
    async def lost() -> AsyncIterator[Any]:
        raise grpc.aio.AioRpcError(
            grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "reset"
        )
        yield

    error = await Bench(lost).error()
    assert isinstance(error, UnavailableError)
    assert "peer" in error.message


async def test_a_peer_that_stops_reading_counts_as_lost_and_sending_never_blocks() -> None:
    bench = Bench(silence)
    for _ in range(MAX_UNSENT + 10):
        bench.link.send(REQUEST)
    error = await bench.error()
    assert isinstance(error, UnavailableError)
    assert "stopped reading" in error.message
    assert bench.inbox.empty()


async def test_nothing_arrives_after_close_and_requests_end() -> None:
    bench = Bench(silence)
    bench.link.send(REQUEST)
    bench.link.close()
    bench.link.send(REQUEST)
    assert bench.requests is not None
    rest = await asyncio.wait_for(_all(bench.requests), 5)
    assert rest == []
    assert bench.inbox.empty()


async def test_requests_end_with_the_peer() -> None:
    """gRPC waits for requests even of a call that is over: a task for each answer would stay."""
    bench = Bench(nothing)
    await bench.error()
    assert bench.requests is not None
    assert await asyncio.wait_for(_all(bench.requests), 5) == []


async def test_a_full_inbox_holds_the_peer_up_and_close_still_works() -> None:
    async def flood() -> AsyncIterator[Any]:
        while True:
            yield RESPONSE

    bench = Bench(flood)
    await until(bench.inbox.full, "a full inbox")
    bench.link.close()
    assert bench.link.messages <= bench.inbox.maxsize + 1


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_closing_again_does_nothing(times: int) -> None:
    bench = Bench(silence)
    for _ in range(times):
        bench.link.close()
    assert bench.inbox.empty()


async def _all(requests: AsyncIterator[Any]) -> list[Any]:
    return [request async for request in requests]
