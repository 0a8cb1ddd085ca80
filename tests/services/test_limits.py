"""What is limited is refused with a typed error, and room is given back to the last token."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from support.drafts import FakeDraft
from support.local import TARGET, Local, Running
from support.models import alone
from support.waiting import until

from outrider.errors import (
    AbortedError,
    CapacityError,
    DeadlineError,
    InvalidArgumentError,
    OutriderError,
    StateMismatchError,
    TokenizerMismatchError,
    UnavailableError,
)
from outrider.models.scripted import ScriptedLaw
from outrider.plans import DraftPlan, ReadinessPolicy
from outrider.types import DraftOpening, SamplingParams, StopConditions, VerifyOpening
from outrider.v1 import common_pb2, draft_pb2, draft_pb2_grpc, verify_pb2, verify_pb2_grpc
from outrider.wire.convert import draft_opening_to, info_to, verify_opening_to
from outrider.wire.errors import from_rpc_error

LAW = ScriptedLaw(vocab=64)
GREEDY = SamplingParams(temperature=0, seed=1)
SLOW = "scripted:vocab=64,step_ms=20"


def verify_open(name: str, max_tokens: int = 1000, **policy: int) -> verify_pb2.VerifyRequest:
    opening = VerifyOpening(
        name, (7,), (), GREEDY, StopConditions(max_tokens), ReadinessPolicy(**policy)
    )
    return verify_pb2.VerifyRequest(open=verify_opening_to(opening))


def draft_open(draft: Running, name: str, **changed: Any) -> draft_pb2.DraftRequest:
    facts: dict[str, Any] = {
        "session_id": name,
        "draft_index": 1,
        "prompt_ids": (7,),
        "emitted_ids": (),
        "sampling": GREEDY,
        "plan": DraftPlan(4),
        "tokenizer_hash": draft.model.info.tokenizer_hash,
        "vocab_size": 64,
    }
    opening = DraftOpening(**{**facts, **changed})
    return draft_pb2.DraftRequest(open=draft_opening_to(opening))


class Stream:
    """A raw stream to a service."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def read(self) -> Any:
        """The next response; a domain error where the stream broke, None at its end."""
        try:
            response = await asyncio.wait_for(self.call.read(), 20)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        return None if response is grpc.aio.EOF else response

    async def rest(self) -> list[Any]:
        """Everything up to the end."""
        responses = []
        while (response := await self.read()) is not None:
            responses.append(response)
        return responses


async def verify_stream(local: Local, verify: Running, *requests: Any) -> Stream:
    stub = verify_pb2_grpc.VerifyServiceStub(await local.channel(verify.address))
    call = stub.Verify()
    for request in requests:
        await call.write(request)
    return Stream(call)


async def draft_stream(local: Local, draft: Running, *requests: Any) -> Stream:
    stub = draft_pb2_grpc.DraftServiceStub(await local.channel(draft.address))
    call = stub.Draft()
    for request in requests:
        await call.write(request)
    return Stream(call)


async def test_the_verifier_refuses_one_session_too_many_and_says_when_to_retry(
    local: Local,
) -> None:
    verify = await local.verify(SLOW, max_sessions=1)
    client = await local.orchestrator(verify)
    async with client.generate("a", max_tokens=500) as first:
        await anext(aiter(first))
        with pytest.raises(CapacityError, match="max-sessions") as failure:
            await client.generate("b", max_tokens=4).result()
        assert failure.value.retry_after_s == 1.0
        assert failure.value.request_id
    await until(lambda: not verify.scheduler._sessions, "the end of the session")
    assert len((await client.generate("b", max_tokens=4).result()).tokens) == 4


async def test_the_orchestrator_refuses_one_request_too_many(local: Local) -> None:
    verify = await local.verify(SLOW)
    client = await local.orchestrator(verify, max_requests=1)
    async with client.generate("a", max_tokens=500) as first:
        await anext(aiter(first))
        with pytest.raises(CapacityError, match="1 requests") as failure:
            await client.generate("b", max_tokens=4).result()
        assert failure.value.retry_after_s == 1.0


async def test_kv_room_is_promised_for_the_whole_answer(local: Local) -> None:
    verify = await local.verify(SLOW, kv_tokens=200)
    client = await local.orchestrator(verify)
    async with client.generate("a", max_tokens=150) as first:
        await anext(aiter(first))
        with pytest.raises(CapacityError, match="promised to 1 open sessions") as failure:
            await client.generate("b", max_tokens=150).result()
        assert failure.value.retry_after_s == 1.0
        assert len((await client.generate("b", max_tokens=20).result()).tokens) == 20


async def test_full_answers_fill_the_promised_cache_to_the_last_token(local: Local) -> None:
    verify = await local.verify(TARGET, kv_tokens=64)
    draft = await local.draft(TARGET)
    client = await local.orchestrator(
        verify, {"a": draft}, num_speculative_tokens=3, wait_nodes=3, max_wait_ms=500
    )
    for _ in range(3):
        result = await client.generate([7], max_tokens=60, temperature=0).result()
        assert [t.id for t in result.tokens] == alone(LAW, [7], 60)


async def test_a_full_draft_is_no_reason_not_to_answer(local: Local) -> None:
    verify = await local.verify(SLOW)
    draft = await local.draft(TARGET, max_sessions=1)
    client = await local.orchestrator(verify, {"a": draft})
    async with client.generate([7], max_tokens=500) as first:
        await anext(aiter(first))
        await until(lambda: len(draft.scheduler._seats) == 1, "the use of the draft")
        second = await client.generate([7], max_tokens=8, temperature=0).result()
    assert [t.id for t in second.tokens] == alone(LAW, [7], 8)
    assert [n for n in second.notices if "draft a has no room for now: all 1 sessions" in n]
    assert not any(draft.lost for draft in second.stats.drafts)


async def test_a_draft_out_of_kv_room_is_no_reason_not_to_answer(local: Local) -> None:
    verify = await local.verify("scripted:vocab=64,step_ms=1")
    draft = await local.draft(TARGET, kv_tokens=64)
    client = await local.orchestrator(verify, {"a": draft})
    result = await client.generate([7], max_tokens=200, temperature=0).result()
    assert [t.id for t in result.tokens] == alone(LAW, [7], 200)


async def test_opening_a_session_again_overtakes_the_open_one(local: Local) -> None:
    verify = await local.verify(SLOW, max_sessions=1)
    first = await verify_stream(local, verify, verify_open("same"))
    assert (await first.read()).HasField("opened")
    second = await verify_stream(local, verify, verify_open("same", max_tokens=3))
    assert (await second.read()).HasField("opened")
    with pytest.raises(AbortedError, match="opened again"):
        await first.rest()
    tokens = [t for response in await second.rest() for t in response.verdict.tokens]
    assert tokens == alone(LAW, [7], 3)
    await until(lambda: verify.model.closed == verify.model.opened, "freed sequences")


async def test_two_openings_of_one_name_at_once_leave_one_session(local: Local) -> None:
    verify = await local.verify(SLOW)
    streams = [await verify_stream(local, verify, verify_open("same", 4)) for _ in range(4)]
    outcomes = await asyncio.gather(*(s.rest() for s in streams), return_exceptions=True)
    whole = [outcome for outcome in outcomes if isinstance(outcome, list)]
    assert len(whole) >= 1
    assert all(isinstance(o, (list, AbortedError)) for o in outcomes), outcomes
    await until(lambda: verify.model.closed == verify.model.opened, "freed sequences")
    assert verify.scheduler._sessions == {}


@pytest.mark.parametrize("kind", ["none", "extend", "policy", "close"])
async def test_a_verify_stream_has_to_start_with_open(local: Local, kind: str) -> None:
    verify = await local.verify()
    first = {
        "none": verify_pb2.VerifyRequest(),
        "extend": verify_pb2.VerifyRequest(extend=common_pb2.DraftChunk()),
        "policy": verify_pb2.VerifyRequest(policy=verify_pb2.ReadinessPolicy()),
        "close": verify_pb2.VerifyRequest(close=verify_pb2.VerifyClose()),
    }[kind]
    stream = await verify_stream(local, verify, first)
    with pytest.raises(InvalidArgumentError, match="starts with open"):
        await stream.rest()
    assert verify.model.opened == 0


@pytest.mark.parametrize("ending", ["close", "half-close", "cancel"])
async def test_every_way_to_leave_frees_the_session(local: Local, ending: str) -> None:
    verify = await local.verify(SLOW)
    stream = await verify_stream(local, verify, verify_open("s"))
    await stream.read()
    await stream.read()
    if ending == "close":
        await stream.call.write(verify_pb2.VerifyRequest(close=verify_pb2.VerifyClose()))
        await stream.rest()
    elif ending == "half-close":
        await stream.call.done_writing()
        await stream.rest()
    else:
        stream.call.cancel()
    await until(lambda: not verify.scheduler._sessions, "the end of the session")
    await until(lambda: verify.model.closed == 1, "a freed sequence")
    await asyncio.wait_for(verify.scheduler.drain(), 5)


async def test_a_second_open_in_an_open_session_is_refused(local: Local) -> None:
    verify = await local.verify(SLOW)
    stream = await verify_stream(local, verify, verify_open("s"), verify_open("s"))
    with pytest.raises(InvalidArgumentError, match="got open in an open session"):
        await stream.rest()


async def test_verdicts_that_nobody_reads_stop_the_session_and_expire_it(local: Local) -> None:
    """A half-open client must not make the verifier work for ever, nor keep its place."""
    verify = await local.verify(idle_timeout_s=0.3)
    opening = VerifyOpening("s", (7,), (), GREEDY, StopConditions(1000), ReadinessPolicy())
    session = await verify.scheduler.open(opening)
    await until(lambda: not verify.scheduler._sessions, "the end of the session")
    assert isinstance(session.error, DeadlineError)
    assert verify.model.passes == len(session.verdicts) == 64
    await until(lambda: verify.model.closed == 1, "a freed sequence")


async def test_a_draft_session_without_commits_expires(local: Local) -> None:
    draft = await local.draft(idle_timeout_s=0.3)
    stream = await draft_stream(local, draft, draft_open(draft, "s"))
    with pytest.raises(DeadlineError, match="nothing was committed"):
        await stream.rest()
    await until(lambda: not draft.scheduler._seats, "the end of the session")
    await until(lambda: draft.model.closed == 1, "a freed sequence")


async def test_a_draft_stops_at_its_depth_and_goes_on_after_a_commit(local: Local) -> None:
    draft = await local.draft()
    stream = await draft_stream(local, draft, draft_open(draft, "s"))
    assert (await stream.read()).HasField("opened")
    tokens: list[int] = []
    while len(tokens) < 4:
        tokens += [n.token for n in (await stream.read()).chunk.nodes]
    assert tokens == alone(LAW, [7], 4)
    passes = draft.model.passes
    commit = draft_pb2.DraftCommit(base=0, tokens=tokens[:2])
    await stream.call.write(draft_pb2.DraftRequest(commit=commit))
    while len(tokens) < 6:
        tokens += [n.token for n in (await stream.read()).chunk.nodes]
    assert tokens == alone(LAW, [7], 6)
    assert draft.model.passes <= passes + 3
    stream.call.cancel()


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({"tokenizer_hash": "other"}, TokenizerMismatchError),
        ({"prompt_ids": (64,)}, InvalidArgumentError),
    ],
    ids=["tokenizer", "vocabulary"],
)
async def test_a_draft_refuses_what_it_cannot_draft_for(
    local: Local, changed: dict[str, Any], kind: type[OutriderError]
) -> None:
    draft = await local.draft()
    stream = await draft_stream(local, draft, draft_open(draft, "s", **changed))
    with pytest.raises(kind):
        await stream.rest()
    assert draft.model.opened == 0


async def test_a_commit_from_elsewhere_is_refused_with_the_drafts_position(local: Local) -> None:
    draft = await local.draft()
    stray = draft_pb2.DraftRequest(commit=draft_pb2.DraftCommit(base=5, tokens=[1]))
    stream = await draft_stream(local, draft, draft_open(draft, "s"), stray)
    with pytest.raises(StateMismatchError) as failure:
        await stream.rest()
    assert failure.value.metadata["position"] == "0"


class OldVerify(verify_pb2_grpc.VerifyServiceServicer):
    async def GetModelInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        model = info_to(_info())
        model.protocol_version = 99
        return verify_pb2.VerifyServiceGetModelInfoResponse(model=model)


class OldDraft(FakeDraft):
    info = common_pb2.ModelInfo(protocol_version=99, version="9.9")

    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        raise AssertionError("must not be called")
        yield


def _info() -> Any:
    from support.drafts import ANY_IDS

    return ANY_IDS


async def test_peers_of_another_protocol_version_are_named_and_not_used(local: Local) -> None:
    verify = await local.verify()
    old = OldDraft()
    client = await local.orchestrator(verify, {"old": await local.fake_draft(old)})
    result = await client.generate("x", max_tokens=4).result()
    assert [n for n in result.notices if "protocol version 99" in n]
    assert old.sessions == 0
    other = await local.orchestrator(await local.fake_verify(OldVerify()))
    with pytest.raises(UnavailableError, match="protocol version 99"):
        await other.generate("x", max_tokens=4).result()


async def test_an_address_that_speaks_no_outrider_is_named_and_not_used(local: Local) -> None:
    verify = await local.verify()
    client = await local.orchestrator(verify, {"swapped": verify})
    result = await client.generate("x", max_tokens=4).result()
    assert [n for n in result.notices if "draft swapped is not used" in n]


async def test_a_client_that_leaves_frees_verifier_and_draft(local: Local) -> None:
    verify = await local.verify(SLOW, max_sessions=1)
    draft = await local.draft(TARGET, max_sessions=1)
    client = await local.orchestrator(verify, {"a": draft}, max_requests=1)
    for _ in range(3):
        async with client.generate([7], max_tokens=1000) as generation:
            await anext(aiter(generation))
        await until(lambda: not verify.scheduler._sessions, "the end at the verifier")
        await until(lambda: not draft.scheduler._seats, "the end at the draft")
    await asyncio.wait_for(verify.scheduler.drain(), 5)
    await asyncio.wait_for(draft.scheduler.drain(), 5)
    await until(lambda: verify.model.closed == verify.model.opened, "freed sequences")
    await until(lambda: draft.model.closed == draft.model.opened, "freed drafts")


async def test_a_deadline_frees_everything_and_says_how_far_it_got(local: Local) -> None:
    verify, draft = await local.verify(SLOW), await local.draft()
    client = await local.orchestrator(verify, {"a": draft})
    generation = client.generate([7], max_tokens=5000, timeout_s=0.5)
    with pytest.raises(DeadlineError, match=r"0\.5 s"):
        await generation.result()
    assert len(generation.tokens) > 0
    await until(lambda: not verify.scheduler._sessions, "the end at the verifier")
    await until(lambda: not draft.scheduler._seats, "the end at the draft")


async def test_a_client_that_stops_reading_holds_up_nobody_else(local: Local) -> None:
    verify = await local.verify("scripted:vocab=64,step_ms=1")
    client = await local.orchestrator(verify)
    idle = client.generate([7], max_tokens=4000)
    await anext(aiter(idle))
    result = await client.generate([9], max_tokens=64, temperature=0, timeout_s=20).result()
    assert [t.id for t in result.tokens] == alone(LAW, [9], 64)
    idle.cancel()


async def test_a_hundred_clients_that_come_and_go_leave_nothing_behind(local: Local) -> None:
    verify = await local.verify("scripted:vocab=64,step_ms=1", max_sessions=64)
    draft = await local.draft(max_sessions=64)
    client = await local.orchestrator(verify, {"a": draft})

    async def visit(number: int) -> None:
        generation = client.generate([number % 64], max_tokens=30, seed=number)
        if number % 3 == 0:
            generation.cancel()
        elif number % 3 == 1:
            with contextlib.suppress(OutriderError):
                await anext(aiter(generation))
            generation.cancel()
        else:
            await generation.result()

    for start in range(0, 100, 25):
        await asyncio.gather(*map(visit, range(start, start + 25)))
    await until(lambda: not verify.scheduler._sessions, "the end at the verifier")
    await until(lambda: not draft.scheduler._seats, "the end at the draft")
    await until(lambda: verify.model.closed == verify.model.opened, "freed sequences")
    await until(lambda: draft.model.closed == draft.model.opened, "freed drafts")
    assert verify.model.model.cells.pinned == draft.model.model.cells.pinned == 0
