"""Every way a call can fail, over real gRPC: class and message of the error, and what is kept."""

import asyncio
import socket

import grpc
import pytest
from scripted_orchestrator import (
    FIRST_VERDICT,
    HANG,
    WHOLE_ANSWER,
    PlainStatus,
    finished,
    started,
)
from support.relay import Relay

from outrider import (
    AsyncClient,
    CapacityError,
    Client,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotAllowedError,
    NotFoundError,
    ProtocolMismatchError,
    RequestCancelledError,
    StateMismatchError,
    UnavailableError,
)
from outrider.errors import OutriderError
from outrider.wire.errors import TABLE

TYPED = [row.error for row in TABLE if row.error is not InternalError]


def error_of(client, script_is_unary=False):
    """The error that a sync `client` raises."""
    with client, pytest.raises(OutriderError) as caught:
        if script_is_unary:
            client.get_model_info()
        else:
            client.generate("hi").result()
    return caught.value


@pytest.fixture
def no_listener():
    """An address that nothing listens at, and that nothing else can take meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.mark.parametrize("kind", TYPED)
@pytest.mark.parametrize("prefix", [(), (started(), FIRST_VERDICT)], ids=["at once", "streaming"])
async def test_a_typed_error_arrives_as_it_was_raised(orchestrator, kind, prefix):
    raised = kind(
        "got 5, wanted 4; take one off",
        request_id="req-1",
        retry_after_s=2.5,
        metadata={"position": "4"},
    )
    orchestrator.servicer.script = (*prefix, raised)
    async with AsyncClient(orchestrator.address, retries=0) as client:
        with pytest.raises(kind) as caught:
            await client.generate("hi").result()
    sync_error = await asyncio.to_thread(error_of, Client(orchestrator.address, retries=0))

    for error in (caught.value, sync_error):
        assert type(error) is kind
        assert error.__cause__ is None
        assert error.message.startswith("got 5, wanted 4; take one off")
        assert str(error) == error.message
        assert (error.request_id, error.retry_after_s) == ("req-1", 2.5)
        assert error.metadata == {"position": "4"}


@pytest.mark.parametrize("kind", TYPED)
async def test_a_typed_error_of_a_unary_call_arrives_as_it_was_raised(orchestrator, kind):
    orchestrator.servicer.unary_error = kind("no")
    async with AsyncClient(orchestrator.address) as client:
        with pytest.raises(kind) as caught:
            await client.get_cluster()
    sync_error = await asyncio.to_thread(error_of, Client(orchestrator.address), True)
    assert caught.value.__suppress_context__ and sync_error.__suppress_context__
    assert [type(error) for error in (caught.value, sync_error)] == [kind] * 2


@pytest.mark.parametrize("raised", [InternalError("row 7 of secret.txt"), KeyError("secret.txt")])
async def test_a_bug_arrives_as_an_id_without_its_text(orchestrator, raised):
    orchestrator.servicer.script = (started(), raised)
    async with AsyncClient(orchestrator.address) as client:
        with pytest.raises(InternalError) as caught:
            await client.generate("hi").result()
    assert caught.value.metadata["error_id"] in caught.value.message
    assert "secret" not in caught.value.message


async def test_an_error_has_the_request_id_as_soon_as_the_answer_has_started(orchestrator):
    orchestrator.servicer.script = (
        started(request_id="req-9"),
        CapacityError("full", retry_after_s=1.0),
    )
    error = await asyncio.to_thread(error_of, Client(orchestrator.address))
    assert error.request_id == "req-9"
    assert error.retry_after_s == 1.0


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgumentError),
        (grpc.StatusCode.NOT_FOUND, NotFoundError),
        (grpc.StatusCode.FAILED_PRECONDITION, StateMismatchError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, CapacityError),
        (grpc.StatusCode.UNAVAILABLE, UnavailableError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineError),
        (grpc.StatusCode.CANCELLED, RequestCancelledError),
        (grpc.StatusCode.UNIMPLEMENTED, ProtocolMismatchError),
        (grpc.StatusCode.PERMISSION_DENIED, NotAllowedError),
        (grpc.StatusCode.UNKNOWN, InternalError),
        (grpc.StatusCode.DATA_LOSS, InternalError),
    ],
)
async def test_a_bare_code_of_a_foreign_server_becomes_a_typed_error(orchestrator, code, kind):
    orchestrator.servicer.script = (PlainStatus(code, "because"),)
    async with AsyncClient(orchestrator.address) as client:
        with pytest.raises(OutriderError) as caught:
            await client.generate("hi").result()
    sync_error = await asyncio.to_thread(error_of, Client(orchestrator.address))
    for error in (caught.value, sync_error):
        assert type(error) is kind
        assert orchestrator.address in error.message


async def test_nothing_listening_names_the_address(no_listener):
    async with AsyncClient(no_listener) as client:
        with pytest.raises(UnavailableError) as caught:
            await client.generate("hi").result()
        with pytest.raises(UnavailableError, match="is it running"):
            await client.get_model_info()
    for error in (caught.value, await asyncio.to_thread(error_of, Client(no_listener))):
        assert type(error) is UnavailableError
        assert f"nothing answers at {no_listener}; is it running?" in error.message


async def test_a_deadline_while_streaming_tells_what_arrived_and_keeps_it(orchestrator):
    orchestrator.servicer.script = (started(), FIRST_VERDICT, HANG)

    def ask():
        with Client(orchestrator.address, timeout_s=1.5) as client:
            generation = client.generate("hi")
            with pytest.raises(DeadlineError) as caught:
                generation.result()
            return caught.value, generation.text, generation.tokens

    asking = asyncio.create_task(asyncio.to_thread(ask))
    async with AsyncClient(orchestrator.address) as client:
        generation = client.generate("hi", timeout_s=1.5)
        with pytest.raises(DeadlineError) as caught:
            await generation.result()

    for error, text, tokens in [
        (caught.value, generation.text, generation.tokens),
        await asking,
    ]:
        assert "longer than 1.5 s; 3 tokens had arrived, see .text" in error.message
        assert error.request_id == "req-1"
        assert (text, len(tokens)) == ("The sea", 3)
    await asyncio.wait_for(orchestrator.servicer.cancelled.wait(), 10)


async def test_a_deadline_before_the_first_message_is_a_deadline_error(orchestrator):
    orchestrator.servicer.script = (HANG,)
    async with AsyncClient(orchestrator.address, timeout_s=0.2) as client:
        with pytest.raises(DeadlineError, match=r"longer than 0\.2 s$"):
            await client.generate("hi").wait_started()


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_broken_connection_tells_how_many_tokens_were_delivered(orchestrator, is_async):
    orchestrator.servicer.script = (started(), FIRST_VERDICT, HANG)
    async with Relay(orchestrator.address) as relay:
        client = (AsyncClient if is_async else Client)(relay.address)
        generation = client.generate("hi")
        for _ in range(3):
            await (anext(generation) if is_async else asyncio.to_thread(next, generation))
        relay.cut()
        with pytest.raises(UnavailableError) as caught:
            await (generation.result() if is_async else asyncio.to_thread(generation.result))
    assert f"the connection to {relay.address} broke" in caught.value.message
    assert "3 tokens had arrived" in caught.value.message
    assert generation.text == "The sea"
    assert caught.value.request_id == "req-1"


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_server_stopped_mid_answer_is_unavailable(orchestrator, is_async):
    orchestrator.servicer.script = (started(), FIRST_VERDICT, HANG)
    client = (AsyncClient if is_async else Client)(orchestrator.address)
    generation = client.generate("hi")
    for _ in range(3):
        await (anext(generation) if is_async else asyncio.to_thread(next, generation))
    await orchestrator.server.stop(None)
    with pytest.raises(UnavailableError, match="3 tokens had arrived"):
        await (generation.result() if is_async else asyncio.to_thread(generation.result))


async def test_an_answer_without_its_last_message_is_no_answer(orchestrator):
    orchestrator.servicer.script = (started(), FIRST_VERDICT)
    async with AsyncClient(orchestrator.address, retries=0) as client:
        with pytest.raises(UnavailableError, match="without its last message; 3 tokens"):
            await client.generate("hi").result()


@pytest.mark.parametrize(
    "script",
    [
        (FIRST_VERDICT,),
        (finished(),),
        (started(), started()),
        (*WHOLE_ANSWER[:-1], finished(finish_reason=0)),
    ],
    ids=["tokens first", "finished first", "started twice", "no reason"],
)
async def test_an_answer_out_of_order_is_refused_and_the_call_ended(orchestrator, script):
    orchestrator.servicer.script = (*script, HANG)
    async with AsyncClient(orchestrator.address) as client:
        with pytest.raises(ProtocolMismatchError):
            await client.generate("hi").result()
        await asyncio.wait_for(orchestrator.servicer.cancelled.wait(), 10)


async def test_another_protocol_version_is_refused(orchestrator):
    orchestrator.servicer.protocol_version = 99
    async with AsyncClient(orchestrator.address) as client:
        with pytest.raises(ProtocolMismatchError, match="99"):
            await client.get_model_info()


async def test_an_error_is_raised_again_by_every_further_step(orchestrator):
    orchestrator.servicer.script = (started(), FIRST_VERDICT, CapacityError("full"))
    async with AsyncClient(orchestrator.address) as client:
        generation = client.generate("hi")
        for _ in range(2):
            with pytest.raises(CapacityError):
                await generation.result()
