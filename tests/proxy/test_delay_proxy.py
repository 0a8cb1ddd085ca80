"""The proxy through real sockets: bytes, ends, back-pressure, cutting and healing."""

import asyncio
import contextlib
import random
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from support.delay_proxy import DelayProxy, Link
from support.waiting import until, until_asked

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 20.0


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[str]:
    """The address of a server that says everything again, and its end last."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(50_000):
                writer.write(data)
                await writer.drain()
            writer.write(b"end")
            writer.write_eof()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield "{}:{}".format(*server.sockets[0].getsockname())


@contextlib.asynccontextmanager
async def proxied(link: Link, **options: int) -> AsyncIterator[DelayProxy]:
    async with echoing() as address, DelayProxy(address, link, **options) as proxy:
        yield proxy


async def opened(proxy: DelayProxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = proxy.address.split(":")
    return await asyncio.open_connection(host, int(port))


async def said_again(proxy: DelayProxy, data: bytes) -> bytes:
    """What comes back for `data` until the end."""
    reader, writer = await opened(proxy)
    writer.write(data)
    writer.write_eof()
    back = await asyncio.wait_for(reader.read(), WAIT_S)
    writer.close()
    return back


@pytest.mark.parametrize(
    "link", [Link(), Link(3, 4), Link(1, 0, 2e6), Link(2, 3, 5e6)], ids=["bare", "j", "bw", "all"]
)
async def test_many_connections_get_their_own_bytes_unchanged(link: Link) -> None:
    source = random.Random(3)
    texts = [source.randbytes(size) for size in (0, 1, 1000, 70_000, 200_000)]
    async with proxied(link, seed=5) as proxy:
        answers = await asyncio.gather(*(said_again(proxy, text) for text in texts))
        assert answers == [text + b"end" for text in texts]
        await until(lambda: proxy.in_flight_bytes == 0, "an empty proxy")
        assert proxy.opened == len(texts)


async def test_a_half_closed_connection_still_answers() -> None:
    async with proxied(Link(5)) as proxy:
        assert await said_again(proxy, b"last words") == b"last wordsend"


async def test_a_round_trip_takes_at_least_both_ways() -> None:
    loop = asyncio.get_running_loop()
    async with echoing() as address, DelayProxy(address, Link(20), Link(30)) as proxy:
        reader, writer = await opened(proxy)
        for _ in range(3):
            began_s = loop.time()
            writer.write(b"ping")
            assert await asyncio.wait_for(reader.readexactly(4), WAIT_S) == b"ping"
            assert loop.time() - began_s >= 0.050
        writer.close()


async def test_no_small_message_waits_for_the_acknowledgement_of_the_one_before() -> None:
    """What one side keeps sending while the other says nothing, as a draft that runs ahead does."""
    async with proxied(Link()) as proxy:
        _, writer = await opened(proxy)
        await until(lambda: proxy.opened == 1, "a connection")
        (connection,) = proxy._connections
        await until(lambda: connection.server._transport is not None, "its other side")
        for end in (connection.client, connection.server):
            assert end._transport is not None
            socket_of = end._transport.get_extra_info("socket")
            assert socket_of.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        writer.close()


async def test_bytes_take_at_least_the_time_that_the_bandwidth_allows() -> None:
    loop = asyncio.get_running_loop()
    async with echoing() as address, DelayProxy(address, Link(bytes_per_s=1e6), Link()) as proxy:
        began_s = loop.time()
        assert len(await said_again(proxy, bytes(100_000))) == 100_003
        assert loop.time() - began_s >= 0.100


async def test_a_reader_that_does_not_read_stops_the_writer_and_later_gets_everything() -> None:
    limit, size = 200_000, 64_000_000
    may_read = asyncio.Event()
    got = asyncio.Event()
    came = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        await may_read.wait()
        while data := await reader.read(1_000_000):
            came += len(data)
        writer.close()
        got.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        address = "{}:{}".format(*server.sockets[0].getsockname())
        async with DelayProxy(address, Link(1), limit_bytes=limit) as proxy:
            _, writer = await opened(proxy)
            held = [0]

            async def write() -> None:
                for _ in range(size // 1_000_000):
                    writer.write(bytes(1_000_000))
                    await writer.drain()
                writer.write_eof()

            writing = asyncio.create_task(write())
            await until(lambda: proxy.in_flight_bytes >= limit, "a full proxy")
            for _ in range(50):
                await asyncio.sleep(0)
                held.append(proxy.in_flight_bytes)
            one_read = 256 * 1024
            assert max(held) <= limit + one_read
            assert not writing.done()
            may_read.set()
            await asyncio.wait_for(got.wait(), WAIT_S)
            assert came == size
            await writing
            writer.close()


async def test_a_cut_proxy_drops_and_refuses_and_a_healed_one_serves_again() -> None:
    async with proxied(Link(1)) as proxy:
        address = proxy.address
        reader, writer = await opened(proxy)
        writer.write(b"x")
        assert await asyncio.wait_for(reader.readexactly(1), WAIT_S) == b"x"

        proxy.cut()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
        assert proxy.is_cut
        with pytest.raises(ConnectionRefusedError):
            await opened(proxy)

        proxy.heal()
        proxy.heal()
        assert (proxy.is_cut, proxy.address) == (False, address)
        assert await said_again(proxy, b"again") == b"againend"


async def test_a_connection_that_has_only_begun_when_it_is_cut_ends() -> None:
    loop = asyncio.get_running_loop()
    async with proxied(Link(1)) as proxy:
        host, port = proxy.address.split(":")
        for turns in range(8):
            with socket.create_connection((host, int(port))) as client:
                client.setblocking(False)
                proxy._accept()
                for _ in range(turns):
                    await asyncio.sleep(0)
                proxy.cut()
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.wait_for(loop.sock_recv(client, 1), WAIT_S) == b""
            proxy.heal()
            assert proxy.in_flight_bytes == 0


async def test_what_is_on_its_way_when_it_is_cut_never_arrives() -> None:
    heard = bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(100):
                heard.extend(data)
        writer.close()
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        address = "{}:{}".format(*server.sockets[0].getsockname())
        async with DelayProxy(address, Link(60_000)) as proxy:
            _, writer = await opened(proxy)
            writer.write(b"lost")
            await until(lambda: proxy.in_flight_bytes == 4, "bytes on their way")
            proxy.cut()
            await asyncio.wait_for(ended.wait(), WAIT_S)
            assert (bytes(heard), proxy.in_flight_bytes) == (b"", 0)
            writer.close()


async def test_a_reset_reaches_the_other_side() -> None:
    failures: asyncio.Queue[BaseException | None] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(100):
                pass
        except ConnectionError as error:
            failures.put_nowait(error)
        else:
            failures.put_nowait(None)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        address = "{}:{}".format(*server.sockets[0].getsockname())
        # A second proxy in front, cut, is a peer that resets.
        async with (
            DelayProxy(address, Link(1)) as proxy,
            DelayProxy(proxy.address, Link()) as front,
        ):
            _, writer = await opened(front)
            writer.write(b"x")
            await until(lambda: proxy.opened == 1, "a connection")
            front.cut()
            failure = await asyncio.wait_for(failures.get(), WAIT_S)
            assert isinstance(failure, ConnectionResetError)
            writer.close()


async def test_a_connection_to_nobody_ends() -> None:
    async with DelayProxy("127.0.0.1:1", Link()) as proxy:
        reader, writer = await opened(proxy)
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
        writer.close()


async def test_other_links_hold_for_later_connections() -> None:
    loop = asyncio.get_running_loop()
    async with proxied(Link(60_000)) as proxy:
        proxy.set_links(Link(10))
        began_s = loop.time()
        assert await said_again(proxy, b"x") == b"xend"
        assert loop.time() - began_s >= 0.020


def started(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.delay_proxy", "--exit-with-stdin", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


async def test_a_process_tells_its_address_is_cut_and_healed_and_ends_with_its_input() -> None:
    loop = asyncio.get_running_loop()
    async with echoing() as behind:
        process = started("--to", behind, "--one-way-ms", "15", "--jitter-ms", "2")
        assert process.stdin is not None and process.stdout is not None
        try:
            host, port = (await asyncio.to_thread(process.stdout.readline)).strip().split(":")

            async def ask() -> bytes:
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(b"x")
                writer.write_eof()
                back = await asyncio.wait_for(reader.read(), WAIT_S)
                writer.close()
                return back

            async def is_as(served: bool) -> bool:
                try:
                    return (await ask() == b"xend") is served
                except ConnectionError:
                    return not served

            began_s = loop.time()
            assert await ask() == b"xend"
            assert loop.time() - began_s >= 0.030
            for number, served in ((signal.SIGUSR1, False), (signal.SIGUSR2, True)):
                process.send_signal(number)
                await until_asked(partial(is_as, served), f"served = {served}")
        finally:
            process.stdin.close()
            assert await asyncio.to_thread(process.wait, WAIT_S) == 0
            process.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--to", "nowhere"), "'nowhere' is no address"),
        (("--to", "h:1", "--one-way-ms", "-1"), "one_way_ms is -1.0"),
        (("--to", "h:1", "--listen", "h:99999"), "'h:99999' is no address"),
    ],
)
def test_bad_arguments_are_told(arguments: tuple[str, ...], told: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.delay_proxy", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2
    assert told in run.stderr
