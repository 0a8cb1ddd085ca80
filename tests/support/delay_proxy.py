"""A TCP proxy that makes the way to an address as long, as narrow and as unreliable as one likes.

    python -m tests.support.delay_proxy --to HOST:PORT [--one-way-ms 10] [--jitter-ms 1]
        [--bytes-per-s 12500000] [--listen 127.0.0.1:0]

prints the address it listens on as one line; SIGUSR1 cuts it, SIGUSR2 heals it. In a test it is an
object on the test's event loop: `async with DelayProxy(address, Link(one_way_ms=20)) as proxy`.

Knows bytes and connections, not what they mean. Bytes are delayed from when the proxy read them;
the handshake of a connection is not delayed. As a process it keeps time with `select`, whose
timeouts are in microseconds; under asyncio's usual `epoll` timers are up to a millisecond late.
"""

import argparse
import asyncio
import contextlib
import ctypes
import os
import selectors
import signal
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from types import TracebackType

from .delay_line import DelayLine, Link

LIMIT_BYTES = 16 * 1024 * 1024
"""A direction with more than this on its way is not read from until some has come out."""

SPIN_S = 0.0002
"""A process of its own is woken this much early and counts down the rest: sleeping is not exact,
and long sleeps are less so, hence an alarm ten times as early before that."""


class DelayProxy:
    """Listens on loopback and forwards every connection to one address.

    Args:
        to: "host:port" of what is behind it.
        there: the way from whoever connects to `to`.
        back: the way back; None: like `there`.
        listen: "host:port" to listen on; port 0 takes a free one and keeps it while cut.
        seed: of the jitter; connections and directions draw from streams of their own.
        limit_bytes: bound on what one direction of one connection holds, give or take one read.
        spin_s: how long the event loop may be held up for the sake of punctuality.
    """

    def __init__(
        self,
        to: str,
        there: Link,
        back: Link | None = None,
        *,
        listen: str = "127.0.0.1:0",
        seed: int = 0,
        limit_bytes: int = LIMIT_BYTES,
        spin_s: float = 0.0,
    ) -> None:
        if limit_bytes < 1:
            raise ValueError(f"limit_bytes is {limit_bytes}; at least 1 must fit")
        self.to = _parsed(to)
        self.there = there
        self.back = there if back is None else back
        self.limit_bytes = limit_bytes
        self.seed = seed
        self.spin_s = spin_s
        self.opened = 0
        self._listen = _parsed(listen)
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        # Bound but never listening: nobody else gets the port while the proxy is cut.
        self._held: socket.socket | None = None

    async def __aenter__(self) -> "DelayProxy":
        self._held = _bound(self._listen)
        self._listen = self._held.getsockname()[:2]
        await self.heal()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cut()
        if self._held is not None:
            self._held.close()

    @property
    def address(self) -> str:
        """Where it listens, or would if it were healed."""
        return f"{self._listen[0]}:{self._listen[1]}"

    @property
    def is_cut(self) -> bool:
        """Whether it refuses connections."""
        return self._server is None

    @property
    def in_flight_bytes(self) -> int:
        """What has been read and not yet passed on, all connections and directions together."""
        return sum(connection.in_flight_bytes for connection in self._connections)

    def cut(self) -> None:
        """Resets every connection, drops what is on its way, refuses new connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._connections):
            connection.abort()

    async def heal(self) -> None:
        """Listens again, on the same address."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._accepted, sock=_bound(self._listen))

    def set_links(self, there: Link, back: Link | None = None) -> None:
        """What connections from now on are like."""
        self.there = there
        self.back = there if back is None else back

    def _accepted(self) -> "_End":
        self.opened += 1
        connection = _Connection(self, self.opened)
        self._connections.add(connection)
        return connection.client

    def _ended(self, connection: "_Connection") -> None:
        self._connections.discard(connection)


class _Connection:
    """One accepted connection and the one behind it."""

    def __init__(self, proxy: DelayProxy, number: int) -> None:
        self._proxy = proxy
        seed = proxy.seed + 2 * number
        self.limit_bytes = proxy.limit_bytes
        self.spin_s = proxy.spin_s
        self.client = _End(self, DelayLine(proxy.there, seed))
        self.server = _End(self, DelayLine(proxy.back, seed + 1))
        self.client.peer, self.server.peer = self.server, self.client
        self._connecting: asyncio.Task[None] | None = None

    @property
    def in_flight_bytes(self) -> int:
        """Of both directions."""
        return self.client.line.in_flight_bytes + self.server.line.in_flight_bytes

    def begin(self) -> None:
        """Connects to what is behind the proxy; what the client says meanwhile waits."""
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def abort(self) -> None:
        """Resets both sides at once."""
        if self._connecting is not None:
            self._connecting.cancel()
        self.client.abort()
        self.server.abort()
        self._proxy._ended(self)

    def end_lost(self) -> None:
        """One side is gone."""
        if self.client.is_lost and self.server.is_lost:
            self._proxy._ended(self)

    async def _connect(self) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self.server, *self._proxy.to)
        except OSError:
            # Nobody is behind the proxy: the client sees its connection end.
            self.abort()


class _End(asyncio.Protocol):
    """One of the two sockets: what it reads enters its line and comes out at its peer."""

    peer: "_End"

    def __init__(self, connection: _Connection, line: DelayLine) -> None:
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
        elif self is self._connection.client:
            self._connection.begin()
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
            # Without this, what was dropped would look like an orderly end.
            at_once = struct.pack("ii", 1, 0)
            end = self._transport.get_extra_info("socket")
            if end is not None and not self._transport.is_closing():
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
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
            out.write_eof()
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


def main(arguments: Sequence[str]) -> int:
    """Runs one proxy until SIGTERM, SIGINT or, if asked, the end of standard input."""
    options = _options(arguments)
    there = Link(options.one_way_ms, options.jitter_ms, options.bytes_per_s)
    proxy = DelayProxy(options.to, there, listen=options.listen, seed=options.seed, spin_s=SPIN_S)
    _be_punctual()
    # asyncio's own choice counts milliseconds.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    try:
        loop.run_until_complete(_serve(proxy, options.exit_with_stdin))
    finally:
        loop.close()
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.support.delay_proxy")
    parser.add_argument("--to", required=True, help="host:port behind the proxy")
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port to listen on")
    parser.add_argument("--one-way-ms", type=float, default=0.0, help="delay of each direction")
    parser.add_argument("--jitter-ms", type=float, default=0.0, help="up to this much more")
    parser.add_argument("--bytes-per-s", type=float, default=0.0, help="0: as fast as it goes")
    parser.add_argument("--seed", type=int, default=0, help="of the jitter")
    parser.add_argument(
        "--exit-with-stdin", action="store_true", help="end when standard input does"
    )
    options = parser.parse_args(arguments)
    try:
        _parsed(options.to)
        _parsed(options.listen)
        Link(options.one_way_ms, options.jitter_ms, options.bytes_per_s)
    except ValueError as error:
        parser.error(str(error))
    return options


async def _serve(proxy: DelayProxy, exit_with_stdin: bool) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if exit_with_stdin:
        threading.Thread(
            target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)), daemon=True
        ).start()
    async with proxy:
        healing: set[asyncio.Task[None]] = set()
        loop.add_signal_handler(signal.SIGUSR1, proxy.cut)
        loop.add_signal_handler(signal.SIGUSR2, lambda: healing.add(loop.create_task(proxy.heal())))
        sys.stdout.write(proxy.address + "\n")
        sys.stdout.flush()
        await ended.wait()


def _be_punctual() -> None:
    """A wire needs no processor: this process goes first where it may, and is woken on time."""
    with contextlib.suppress(OSError):
        os.nice(-10)
    if sys.platform == "linux":
        set_timer_slack = 29
        ctypes.CDLL(None).prctl(set_timer_slack, 1, 0, 0, 0)


def _parsed(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{address!r} is no address; host:port is wanted")
    return host.strip("[]"), int(port)


def _bound(address: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
