"""Calls that fail and are made again: which, how often, and that no token is lost or repeated."""

import asyncio
import random
import socket

import grpc
import pytest
from scripted_orchestrator import (
    FIRST_VERDICT,
    HANG,
    SECOND_VERDICT,
    WHOLE_ANSWER,
    PlainStatus,
    RunningOrchestrator,
    ScriptedOrchestrator,
    finished,
    started,
    tokens,
)
from support.waiting import until

from outrider import (
    AsyncClient,
    CapacityError,
    Client,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    OutriderError,
    ProtocolMismatchError,
    RequestCancelledError,
    UnavailableError,
)
from outrider.client import retrying
from outrider.client.answer import Result
from outrider.client.retrying import Attempts, may_pass
from outrider.request_ids import REQUEST_ID
from outrider.v1 import common_pb2
from outrider.v1.orchestrator_pb2_grpc import add_OrchestratorServiceServicer_to_server
from outrider.wire.errors import TABLE

BREAK = PlainStatus(grpc.StatusCode.UNAVAILABLE, "socket closed")
REST = tokens((12, " s", "attic"), (13, "ea", ""))


async def answered(address: str, *, is_async: bool, **settings: object) -> Result:
    if is_async:
        async with AsyncClient(address, **settings) as client:  # type: ignore[arg-type]
            return await client.generate("hi").result()

    def ask() -> Result:
        with Client(address, **settings) as client:  # type: ignore[arg-type]
            return client.generate("hi").result()

    return await asyncio.to_thread(ask)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long the waits are is tested where they are computed."""
    monkeypatch.setattr("outrider.client.retrying.FIRST_WAIT_S", 0.01)


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_answer_goes_on_behind_what_had_arrived(
    orchestrator: RunningOrchestrator, is_async: bool
) -> None:
    orchestrator.servicer.attempts = [
        (started(model="sea"), tokens((11, "The", "attic")), BREAK),
        (BREAK,),
        (started(delivered_tokens=1, notices=["another"], drafts=["cellar"]), REST, BREAK),
        (started(delivered_tokens=3), SECOND_VERDICT, finished()),
    ]
    result = await answered(orchestrator.address, is_async=is_async)
    assert [token.id for token in result.tokens] == [11, 12, 13, 14]
    assert result.text == "The sea."
    assert result.resumed_at == (1, 3)
    assert result.notices == ("hello", "another", "a draft was lost")

    first, second, third, fourth = orchestrator.servicer.requests
    assert not first.delivered_ids and not first.sampling.HasField("seed") and not first.model
    assert list(second.delivered_ids) == list(third.delivered_ids) == [11]
    assert list(fourth.delivered_ids) == [11, 12, 13]
    for request in (second, third, fourth):
        assert request.sampling.seed == 7, "the one that the first attempt was told"
        assert request.sampling.mode == common_pb2.ACCEPTANCE_MODE_BLOCK
        assert request.model == "sea"
    names = {str(metadata[REQUEST_ID]) for metadata in orchestrator.servicer.metadata}
    assert len(names) == 1 and len(names.pop()) == 32


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_was_only_begun_is_asked_for_anew(
    orchestrator: RunningOrchestrator, is_async: bool
) -> None:
    orchestrator.servicer.attempts = [(BREAK,), (started(seed=9), BREAK)]
    result = await answered(orchestrator.address, is_async=is_async)
    assert result.text == "The sea."
    assert result.resumed_at == ()
    assert [r.sampling.seed for r in orchestrator.servicer.requests] == [0, 0, 9]


async def test_an_answer_that_lost_only_its_last_message_gets_it(
    orchestrator: RunningOrchestrator,
) -> None:
    orchestrator.servicer.attempts = [
        (started(), FIRST_VERDICT, SECOND_VERDICT, BREAK),
        (started(delivered_tokens=4), finished()),
    ]
    result = await answered(orchestrator.address, is_async=True)
    assert (result.text, result.resumed_at) == ("The sea.", (4,))


@pytest.mark.parametrize("behind", [0, 2])
async def test_a_server_that_would_repeat_or_skip_text_is_refused(
    orchestrator: RunningOrchestrator, behind: int
) -> None:
    orchestrator.servicer.attempts = [
        (started(), FIRST_VERDICT, BREAK),
        (started(delivered_tokens=behind), FIRST_VERDICT, HANG),
    ]
    async with AsyncClient(orchestrator.address) as client:
        generation = client.generate("hi")
        with pytest.raises(ProtocolMismatchError, match=f"begins behind {behind} of the 3 tokens"):
            await generation.result()
        assert generation.text == "The sea"
        await asyncio.wait_for(orchestrator.servicer.cancelled.wait(), 10)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_row_of_failures_ends_with_the_last_one(
    orchestrator: RunningOrchestrator, is_async: bool
) -> None:
    orchestrator.servicer.script = (UnavailableError("loading", request_id="theirs"),)
    with pytest.raises(UnavailableError, match=r"loading \(tried 4 times\)") as caught:
        await answered(orchestrator.address, is_async=is_async, retries=3)
    assert caught.value.request_id == "theirs"
    assert len(orchestrator.servicer.requests) == 4


async def test_tokens_begin_a_new_row(orchestrator: RunningOrchestrator) -> None:
    """So a long answer outlives any number of breaks, if only each attempt brings something."""
    ids = range(20)
    orchestrator.servicer.attempts = [
        (started(delivered_tokens=n), tokens((n, "x", "")), BREAK) for n in ids
    ]
    orchestrator.servicer.script = (started(delivered_tokens=20), finished())
    result = await answered(orchestrator.address, is_async=True, retries=1)
    assert [token.id for token in result.tokens] == list(ids)
    assert result.resumed_at == tuple(range(1, 21))


async def test_without_retries_the_first_failure_counts(orchestrator: RunningOrchestrator) -> None:
    orchestrator.servicer.attempts = [(started(), FIRST_VERDICT, BREAK)]
    async with AsyncClient(orchestrator.address, retries=0) as client:
        with pytest.raises(UnavailableError, match=r"3 tokens had arrived, see \.text"):
            await client.generate("hi").result()
    assert len(orchestrator.servicer.requests) == 1


@pytest.mark.parametrize(
    "error",
    [row.error("no") for row in TABLE if row.error is not UnavailableError],
    ids=lambda error: type(error).__name__,
)
async def test_what_would_fail_again_is_asked_once(
    orchestrator: RunningOrchestrator, error: OutriderError
) -> None:
    orchestrator.servicer.script = (started(), FIRST_VERDICT, error)
    with pytest.raises(type(error)):
        await answered(orchestrator.address, is_async=True)
    assert len(orchestrator.servicer.requests) == 1


@pytest.mark.parametrize("is_async", [False, True])
async def test_other_calls_are_made_again_too(
    orchestrator: RunningOrchestrator, is_async: bool
) -> None:
    servicer = orchestrator.servicer
    servicer.unary_errors = [UnavailableError("loading"), UnavailableError("loading")]
    if is_async:
        async with AsyncClient(orchestrator.address) as client:
            assert (await client.get_model_info()).model_name == "sea"
    else:

        def ask() -> str:
            with Client(orchestrator.address) as client:
                return client.get_model_info().model_name

        assert await asyncio.to_thread(ask) == "sea"
    assert not servicer.unary_errors


@pytest.mark.parametrize("is_async", [False, True])
async def test_every_error_names_the_request(is_async: bool) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        metadata = {REQUEST_ID: "mine-1"}
        with pytest.raises(UnavailableError, match="nothing answers") as caught:
            await answered(address, is_async=is_async, retries=0, metadata=metadata)
        assert caught.value.request_id == "mine-1"
        async with AsyncClient(address, retries=0) as client:
            with pytest.raises(UnavailableError) as other:
                await client.get_cluster()
            assert len(other.value.request_id) == 32
            generation = client.generate("hi")
            generation.cancel()
            with pytest.raises(RequestCancelledError) as third:
                await generation.result()
            assert third.value.request_id == generation.request_id


@pytest.mark.parametrize("is_async", [False, True])
async def test_giving_up_between_two_attempts_ends_the_wait(
    orchestrator: RunningOrchestrator, is_async: bool
) -> None:
    orchestrator.servicer.script = (CapacityError("full", retry_after_s=500.0),)
    client = (AsyncClient if is_async else Client)(orchestrator.address)
    generation = client.generate("hi")
    waiting = asyncio.create_task(
        generation.result() if is_async else asyncio.to_thread(generation.result)  # type: ignore[arg-type]
    )
    await until(lambda: generation._stream is None, "the pause")
    generation.cancel()
    with pytest.raises(RequestCancelledError):
        await asyncio.wait_for(waiting, 10)
    assert len(orchestrator.servicer.requests) == 1


async def test_a_cancelled_task_ends_the_wait_for_the_next_attempt(
    orchestrator: RunningOrchestrator,
) -> None:
    orchestrator.servicer.script = (CapacityError("full", retry_after_s=500.0),)
    async with AsyncClient(orchestrator.address) as client:
        generation = client.generate("hi")
        waiting = asyncio.create_task(generation.result())
        await until(lambda: generation._stream is None, "the pause")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_client_that_is_closed_meanwhile_makes_no_further_attempt(
    orchestrator: RunningOrchestrator, is_async: bool
) -> None:
    orchestrator.servicer.script = (CapacityError("full", retry_after_s=500.0),)
    client = (AsyncClient if is_async else Client)(orchestrator.address)
    generation = client.generate("hi")
    waiting = asyncio.create_task(
        generation.result() if is_async else asyncio.to_thread(generation.result)  # type: ignore[arg-type]
    )
    await until(lambda: generation._stream is None, "the pause")
    await (client.close() if is_async else asyncio.to_thread(client.close))  # type: ignore[func-returns-value]
    with pytest.raises(RequestCancelledError, match="closed during the call"):
        await asyncio.wait_for(waiting, 10)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_plain_call_that_waits_ends_with_its_client(
    orchestrator: RunningOrchestrator, is_async: bool
) -> None:
    orchestrator.servicer.unary_error = CapacityError("full", retry_after_s=500.0)
    client = (AsyncClient if is_async else Client)(orchestrator.address)
    asking = asyncio.create_task(
        client.get_model_info() if is_async else asyncio.to_thread(client.get_model_info)  # type: ignore[arg-type]
    )
    await until(lambda: bool(client._pauses), "the pause")
    await (client.close() if is_async else asyncio.to_thread(client.close))  # type: ignore[func-returns-value]
    with pytest.raises(RequestCancelledError, match="closed during the call"):
        await asyncio.wait_for(asking, 10)


async def test_a_cancellation_between_two_streams_is_not_lost(
    orchestrator: RunningOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    orchestrator.servicer.attempts = [(BREAK,)]
    orchestrator.servicer.script = (HANG,)
    client = Client(orchestrator.address)
    generation = client.generate("hi")
    start = generation._start

    def start_late(*arguments: object) -> object:
        generation.cancel()  # as by another thread, which finds no stream
        return start(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(generation, "_start", start_late)
    with pytest.raises(RequestCancelledError):
        await asyncio.wait_for(asyncio.to_thread(generation.result), 10)
    await asyncio.to_thread(client.close)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_server_that_comes_up_meanwhile_is_reached(
    monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    """Until a moment after a refused connection gRPC fails calls without trying."""
    monkeypatch.setattr(retrying, "FIRST_WAIT_S", 1.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asking = asyncio.create_task(answered(f"127.0.0.1:{port}", is_async=is_async))
    await asyncio.sleep(0.2)  # the first attempt has failed by then
    servicer = ScriptedOrchestrator()
    servicer.script = WHOLE_ANSWER
    server = grpc.aio.server()
    add_OrchestratorServiceServicer_to_server(servicer, server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    assert (await asking).text == "The sea."
    await server.stop(None)


@pytest.mark.parametrize(
    "changes", [{"seed": 8}, {"mode": 1}, {"model": "lake"}, {"prompt_tokens": 4}], ids=str
)
async def test_another_answer_is_not_put_behind_this_one(
    orchestrator: RunningOrchestrator, changes: dict[str, object]
) -> None:
    orchestrator.servicer.attempts = [
        (started(), FIRST_VERDICT, BREAK),
        (started(delivered_tokens=3, **changes), SECOND_VERDICT, finished()),
    ]
    with pytest.raises(ProtocolMismatchError, match="other facts than before"):
        await answered(orchestrator.address, is_async=True)


async def test_an_id_that_no_server_takes_is_refused() -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(InvalidArgumentError, match=r"x-request-id.* is 'my job 7'; give"):
            kind(metadata={REQUEST_ID: "my job 7"})


async def test_the_deadline_holds_for_all_attempts_together(
    orchestrator: RunningOrchestrator,
) -> None:
    orchestrator.servicer.attempts = [(started(), FIRST_VERDICT, BREAK)]
    orchestrator.servicer.script = (started(delivered_tokens=3), HANG)
    with pytest.raises(
        DeadlineError, match=r"longer than 0\.5 s \(tried 2 times\); 3 tokens had arrived"
    ):
        await answered(orchestrator.address, is_async=True, timeout_s=0.5)
    assert len(orchestrator.servicer.requests) == 2


@pytest.mark.parametrize("wrong", [-1, 101, 1.5, True, "2"])
def test_a_number_of_retries_has_bounds(wrong: object) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(InvalidArgumentError, match=r"retries is .*; give a whole number"):
            kind(retries=wrong)


def test_waits_double_and_stay_within_their_bounds() -> None:
    random.seed(1)
    for _ in range(50):
        attempts = Attempts(9, deadline=1000.0)
        waits = [attempts.wait_s(UnavailableError("gone"), now=0.0) for _ in range(10)]
        assert waits.pop() is None
        for row, wait_s in enumerate(waits):
            most_s = min(retrying.FIRST_WAIT_S * 2**row, retrying.MOST_WAIT_S)
            assert wait_s is not None and most_s / 2 <= wait_s <= most_s


def test_a_wait_is_longer_than_asked_for_and_none_ends_beyond_the_deadline() -> None:
    error = CapacityError("full", retry_after_s=3.0)
    waits = [Attempts(2, deadline=10.0).wait_s(error, now=6.5) or 0.0 for _ in range(9)]
    assert len(set(waits)) == 9, "not all at the same time"
    assert all(3.0 < wait_s < 3.5 for wait_s in waits)
    assert Attempts(2, deadline=10.0).wait_s(error, now=7.0) is None


def test_only_what_may_pass_is_tried_again() -> None:
    assert may_pass(UnavailableError("gone"))
    assert may_pass(CapacityError("full", retry_after_s=0.0))
    assert not may_pass(CapacityError("it will never fit"))
    assert not may_pass(InternalError("a bug"))
