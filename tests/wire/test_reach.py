"""What is in the way of a connection: the name, the port, silence or the route."""

import asyncio
import errno
import socket

import pytest

from outrider.wire import reach
from outrider.wire.reach import Obstacle, explained, obstacle


async def test_a_port_that_listens_is_no_obstacle() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        assert await obstacle(f"127.0.0.1:{listening.getsockname()[1]}") is Obstacle.NONE


async def test_a_port_that_nobody_listens_on_refuses() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    assert await obstacle(f"127.0.0.1:{port}") is Obstacle.REFUSED
    assert await obstacle(f"localhost:{port}") is Obstacle.REFUSED


async def test_a_name_that_nobody_knows_is_told_apart() -> None:
    assert await obstacle("no-such-name.invalid:7070") is Obstacle.NAME


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(errno.EHOSTUNREACH, "no route"), Obstacle.NO_ROUTE),
        (OSError(errno.ENETUNREACH, "no network"), Obstacle.NO_ROUTE),
        (TimeoutError(), Obstacle.SILENT),
        (OSError("Multiple exceptions: [Errno 111] Connection refused"), Obstacle.REFUSED),
    ],
)
async def test_what_the_system_says_is_understood(
    monkeypatch: pytest.MonkeyPatch, error: OSError, expected: Obstacle
) -> None:
    async def connect(host: str, port: int) -> None:
        raise error

    monkeypatch.setattr(reach.asyncio, "open_connection", connect)
    assert await obstacle("10.0.0.1:7070") is expected


async def test_a_machine_that_says_nothing_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def connect(host: str, port: int) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(reach.asyncio, "open_connection", connect)
    assert await obstacle("10.0.0.1:7070", timeout_s=0.01) is Obstacle.SILENT


def test_every_obstacle_has_its_own_sentence_with_a_remedy() -> None:
    told = {explained(found, "box:7072") for found in Obstacle}
    assert len(told) == len(Obstacle)
    assert all(word in "".join(told) for word in ("--host", "firewall", "VPN", "IP address"))
