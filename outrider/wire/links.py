"""A bidirectional stream to a service as two queues: sending never blocks, arrivals share one
inbox.

Knows gRPC streams; what they carry is up to the subclass that sends and to `decode`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import grpc

from outrider.errors import InternalError, OutriderError, UnavailableError
from outrider.telemetry.logs import get_logger
from outrider.wire.errors import from_rpc_error, readable

MAX_UNSENT = 1024


class Message(Protocol):
    """A protobuf message, as far as a link cares."""

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's name
        """Bytes on the wire."""
        ...


Request = TypeVar("Request", bound=Message)


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a link received, decoded, or the error that ended it."""

    link: "Link[Any]"
    message: object = None
    error: OutriderError | None = None


class Link(Generic[Request]):
    """One stream. A peer that does not read, breaks the protocol or is gone ends the link with an
    error in the inbox; nothing follows it."""

    def __init__(
        self,
        name: str,
        address: str,
        start: Callable[[AsyncIterator[Request]], Any],
        decode: Callable[[Any], object],
        inbox: "asyncio.Queue[Arrival]",
    ) -> None:
        self.name = name
        self._address = address
        self.messages = 0
        self.wire_bytes = 0
        self.heard_at = time.monotonic()
        self._inbox = inbox
        self._decode = decode
        self._outbox: asyncio.Queue[Request | None] = asyncio.Queue(MAX_UNSENT)
        self._is_over = False
        self._has_answered = False
        self._call = start(self._requests())
        self._reader = asyncio.create_task(self._read())

    def close(self) -> None:
        """Cancels the stream; nothing arrives from it any more."""
        self._reader.cancel()
        self._end()

    def send(self, request: Request) -> None:
        """Queues a request; a peer that lets too many pile up counts as lost."""
        if self._is_over:
            return
        self._count(request)
        try:
            self._outbox.put_nowait(request)
        except asyncio.QueueFull:
            self.close()
            error = UnavailableError(f"{self.name} stopped reading; {MAX_UNSENT} messages wait")
            self._reader = asyncio.create_task(self._inbox.put(Arrival(self, error=error)))

    async def _requests(self) -> AsyncIterator[Request]:
        while (request := await self._outbox.get()) is not None:
            yield request

    def _end(self) -> None:
        """Cancels the call, and ends its requests: gRPC waits for more when the peer is done."""
        self._is_over = True
        self._call.cancel()
        while not self._outbox.empty():
            self._outbox.get_nowait()
        self._outbox.put_nowait(None)

    async def _read(self) -> None:
        error: OutriderError = UnavailableError(f"{self.name} ended the stream")
        try:
            async for received in self._call:
                response = readable(received, self.name)
                self._has_answered = True
                self.heard_at = time.monotonic()
                self._count(response)
                await self._inbox.put(Arrival(self, self._decode(response)))
        except grpc.RpcError as rpc_error:
            error = from_rpc_error(
                rpc_error, address=self._address, has_answered=self._has_answered
            )
        except OutriderError as broken_protocol:
            error = broken_protocol
        except Exception as bug:
            error = InternalError(f"what {self.name} sent could not be read ({type(bug).__name__})")
            get_logger().error("link_failed", peer=self.name, exc_info=bug)
        except asyncio.CancelledError:
            # Our own close; otherwise a channel that was closed below us.
            if self._is_over:
                raise
        self._end()
        await self._inbox.put(Arrival(self, error=error))

    def _count(self, message: Message) -> None:
        self.messages += 1
        self.wire_bytes += message.ByteSize()
