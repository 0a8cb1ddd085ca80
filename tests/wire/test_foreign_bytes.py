"""Peers that are no Outrider service: their bytes end a call with a typed error, and nothing hangs.

`grpc.aio` gives None for a response that it cannot parse; nobody may take that for a message.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from orchestrator.peers import Peers
from outrider.client import AsyncClient
from outrider.errors import ProtocolMismatchError, UnavailableError
from outrider.plans import DraftPlan, ReadinessPolicy
from outrider.types import DraftOpening, SamplingParams, StopConditions, VerifyOpening
from outrider.wire.channels import open_channel
from outrider.wire.draft_client import DraftClient
from outrider.wire.links import Arrival, Link
from outrider.wire.verify_client import VerifyClient

GARBAGE = b"\xff\xff\xff HTTP/1.1 400"
GREEDY = SamplingParams(temperature=0, seed=0)
UNARY = {"GetModelInfo", "Tokenize", "GetCluster"}


class Foreign(grpc.GenericRpcHandler):
    """Answers every method with bytes that are no message, and leaves streams open."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        name = handler_call_details.method.rpartition("/")[2]
        if name in UNARY:
            return grpc.unary_unary_rpc_method_handler(self._one)
        if name in ("GetVocabulary", "Generate"):
            return grpc.unary_stream_rpc_method_handler(self._many)
        return grpc.stream_stream_rpc_method_handler(self._many)

    async def _one(self, request: bytes, context: Any) -> bytes:
        return GARBAGE

    async def _many(self, request: Any, context: Any) -> AsyncIterator[bytes]:
        yield GARBAGE
        await asyncio.Event().wait()


@pytest.fixture
async def address() -> AsyncIterator[str]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Foreign(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.fixture
async def channel(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with open_channel(address) as opened:
        yield opened


Inbox = asyncio.Queue[Arrival]


def draft_link(channel: grpc.aio.Channel, address: str, inbox: Inbox) -> Link[Any]:
    opening = DraftOpening("s", 1, (1,), (), GREEDY, DraftPlan(), "", 8)
    return DraftClient(channel, address).draft("peer", opening, inbox)


def verify_link(channel: grpc.aio.Channel, address: str, inbox: Inbox) -> Link[Any]:
    opening = VerifyOpening("s", (1,), (), GREEDY, StopConditions(9), ReadinessPolicy())
    return VerifyClient(channel, address).verify("peer", opening, inbox)


Open = Callable[[grpc.aio.Channel, str, Inbox], Link[Any]]


@pytest.mark.parametrize("open_link", [draft_link, verify_link])
async def test_a_stream_of_foreign_bytes_ends_its_link_with_an_error(
    channel: grpc.aio.Channel, address: str, open_link: Open
) -> None:
    inbox: Inbox = asyncio.Queue()
    link = open_link(channel, address, inbox)
    arrival = await asyncio.wait_for(inbox.get(), 5)
    assert arrival.link is link
    assert isinstance(arrival.error, ProtocolMismatchError)
    assert "peer sent bytes that are no message" in arrival.error.message
    assert inbox.empty()


@pytest.mark.parametrize("open_link", [draft_link, verify_link])
async def test_a_channel_that_is_closed_below_a_link_ends_it_with_an_error(
    address: str, open_link: Open
) -> None:
    inbox: Inbox = asyncio.Queue()
    channel = grpc.aio.insecure_channel("127.0.0.1:1")
    open_link(channel, address, inbox)
    await channel.close()
    arrival = await asyncio.wait_for(inbox.get(), 5)
    assert isinstance(arrival.error, UnavailableError)


CALLS: dict[str, Callable[[grpc.aio.Channel, str], Awaitable[object]]] = {
    "draft-model": lambda channel, address: DraftClient(channel, address).model_info(5),
    "verify-model": lambda channel, address: VerifyClient(channel, address).model_info(5),
    "vocabulary": lambda channel, address: VerifyClient(channel, address).vocabulary(),
    "tokenize": lambda channel, address: VerifyClient(channel, address).tokenize("x"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_foreign_answer_is_an_error_that_names_the_address(
    channel: grpc.aio.Channel, address: str, name: str
) -> None:
    with pytest.raises(ProtocolMismatchError, match=f"{address} sent bytes"):
        await CALLS[name](channel, address)


async def test_a_foreign_service_is_a_peer_with_a_problem(address: str) -> None:
    peers = Peers(address, [f"odd={address}"])
    await peers.probe()
    assert "no message of this protocol" in peers.verify.problem
    assert "no message of this protocol" in peers.drafts[0].problem
    await peers.stop()


async def test_the_client_says_so_too(address: str) -> None:
    async with AsyncClient(address, timeout_s=10) as client:
        with pytest.raises(ProtocolMismatchError, match="no message"):
            await client.get_model_info()
        with pytest.raises(ProtocolMismatchError, match="no message"):
            await client.generate("x", max_tokens=4).result()
