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
import sys
import threading
from collections.abc import Sequence
from types import TracebackType

from .delay_line import DelayLine, Link
from .delayed_connection import DelayedConnection

LIMIT_BYTES = 16 * 1024 * 1024
"""A direction with more than this on its way is not read from until some has come out."""

BACKLOG = 128

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
        self._connections: set[DelayedConnection] = set()
        self._listener: socket.socket | None = None
        # Bound but never listening: nobody else gets the port while the proxy is cut.
        self._held: socket.socket | None = None

    async def __aenter__(self) -> "DelayProxy":
        self._held = _bound(self._listen)
        self._listen = self._held.getsockname()[:2]
        self.heal()
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
        return self._listener is None

    @property
    def in_flight_bytes(self) -> int:
        """What has been read and not yet passed on, all connections and directions together."""
        return sum(connection.in_flight_bytes for connection in self._connections)

    def cut(self) -> None:
        """Resets every connection, drops what is on its way, refuses new connections."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for connection in list(self._connections):
            connection.abort()

    def heal(self) -> None:
        """Listens again, on the same address."""
        if self._listener is None:
            self._listener = _bound(self._listen)
            self._listener.setblocking(False)
            self._listener.listen(BACKLOG)
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def set_links(self, there: Link, back: Link | None = None) -> None:
        """What connections from now on are like."""
        self.there = there
        self.back = there if back is None else back

    def _accept(self) -> None:
        """Accepts here, since asyncio's own server forgets a connection if it is closed at once."""
        if self._listener is None:
            return
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        self.opened += 1
        seed = self.seed + 2 * self.opened
        lines = (DelayLine(self.there, seed), DelayLine(self.back, seed + 1))
        self._connections.add(
            DelayedConnection(
                accepted, self.to, lines, self.limit_bytes, self.spin_s, self._connections.discard
            )
        )


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
        loop.add_signal_handler(signal.SIGUSR1, proxy.cut)
        loop.add_signal_handler(signal.SIGUSR2, proxy.heal)
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
