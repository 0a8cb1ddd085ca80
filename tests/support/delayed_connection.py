"""One connection through a delay proxy: two sockets, a line in each direction between them.

Knows bytes, ends, resets and back-pressure; when a byte comes out is the lines' business.
"""

import asyncio
import socket
import struct
from collections.abc import Callable

from .delay_line import DelayLine


class DelayedConnection:
    """One accepted connection and the one that it opens to `to`.

    Args:
        accepted: the socket of whoever connected; this owns it from now on.
        lines: from the client to `to`, and back.
        limit_bytes: what one direction holds, give or take one read.
        spin_s: how long the event loop may be held up for the sake of punctuality.
        on_end: called with this once both sides are gone; perhaps more than once.
    """

    def __init__(
        self,
        accepted: socket.socket,
        to: tuple[str, int],
        lines: tuple[DelayLine, DelayLine],
        limit_bytes: int,
        spin_s: float,
        on_end: "Callable[[DelayedConnection], None]",
    ) -> None:
        self.limit_bytes = limit_bytes
        self.spin_s = spin_s
        self._to = to
        self._on_end = on_end
        self.client, self.server = (_End(self, line) for line in lines)
        self.client.peer, self.server.peer = self.server, self.client
        # Until a transport owns the socket it has to be closed here.
        self._accepted: socket.socket | None = accepted
        self._opening = asyncio.get_running_loop().create_task(self._open(accepted))

    @property
    def in_flight_bytes(self) -> int:
        """Of both directions."""
        return self.client.line.in_flight_bytes + self.server.line.in_flight_bytes

    def abort(self) -> None:
        """Resets both sides at once."""
        self._opening.cancel()
        if self._accepted is not None:
            _reset_on_close(self._accepted)
            self._accepted.close()
            self._accepted = None
        self.client.abort()
        self.server.abort()
        self._on_end(self)

    def end_lost(self) -> None:
        """One side is gone."""
        if self.client.is_lost and self.server.is_lost:
            self._on_end(self)

    async def _open(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._accepted = None
        try:
            accepted.setblocking(False)
            # asyncio does it for sockets that it made itself. Without it a small message waits for
            # the other side's delayed acknowledgement of the one before, 40 ms.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.connect_accepted_socket(lambda: self.client, accepted)
            # What the client says meanwhile waits.
            await loop.create_connection(lambda: self.server, *self._to)
        except OSError:
            # Nobody is behind the proxy: the client sees its connection end.
            self.abort()


class _End(asyncio.Protocol):
    """One of the two sockets: what it reads enters its line and comes out at its peer."""

    peer: "_End"

    def __init__(self, connection: DelayedConnection, line: DelayLine) -> None:
        self._connection = connection
        self.line = line
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_reading = True
        self._can_write = True
        self._was_reset = False
        self._has_ended = False
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self.is_lost:  # cut before it began
            self.abort()
        else:
            self.peer._deliver()

    def data_received(self, data: bytes) -> None:
        self._enter(data)

    def eof_received(self) -> bool:
        self._enter(b"")
        return True  # the other direction stays open

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if error is not None:
            self._was_reset = True
            self._enter(b"")
        self._connection.end_lost()

    def pause_writing(self) -> None:
        self._can_write = False

    def resume_writing(self) -> None:
        self._can_write = True
        self.peer._deliver()

    def abort(self) -> None:
        """Resets this socket; nothing comes out any more."""
        self.is_lost = True
        self._disarm()
        if self._transport is not None:
            end = self._transport.get_extra_info("socket")
            if end is not None and not self._transport.is_closing():
                _reset_on_close(end)
            self._transport.abort()

    def _enter(self, data: bytes) -> None:
        self.line.put(self._loop.time(), data)
        self._deliver()

    def _deliver(self) -> None:
        """Hands the peer what has come out, as far as it takes it, and sets the next alarm."""
        self._disarm()
        out = self.peer._transport
        if self.peer.is_lost:
            self.line.clear()
        elif out is not None and self.peer._can_write:
            self._write(out, self.line.take(self._loop.time()))
            next_s = self.line.next_s
            if next_s is not None and self.peer._can_write:
                self._arm(next_s)
        self._regulate()

    def _arm(self, next_s: float) -> None:
        spin_s = self._connection.spin_s
        is_far = next_s - self._loop.time() > 10 * spin_s
        early_s = 10 * spin_s if is_far else spin_s
        self._timer = self._loop.call_at(next_s - early_s, self._on_time)

    def _on_time(self) -> None:
        next_s = self.line.next_s
        if next_s is not None and next_s - self._loop.time() <= self._connection.spin_s:
            while self._loop.time() < next_s:
                pass
        self._deliver()

    def _write(self, out: asyncio.Transport, pieces: list[bytes]) -> None:
        data = b"".join(pieces)
        if data:
            out.write(data)
        if b"" not in pieces:
            return
        if self._was_reset:
            self._connection.abort()
            return
        if not out.is_closing():
            try:
                out.write_eof()
            except OSError:  # That side has gone, and its transport does not know yet.
                self._connection.abort()
                return
        self._has_ended = True
        if self.peer._has_ended:
            for transport in (out, self._transport):
                if transport is not None:
                    transport.close()

    def _regulate(self) -> None:
        """Back-pressure: reads no more while too much is on its way."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        may_read = self.line.in_flight_bytes < self._connection.limit_bytes
        if may_read != self._is_reading:
            self._is_reading = may_read
            if may_read:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _reset_on_close(end: "socket.socket | asyncio.trsock.TransportSocket") -> None:
    """Without this, what is dropped would look like an orderly end."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
