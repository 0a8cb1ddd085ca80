"""A bug ends what it touches, with an error that can be found in the log; nothing hangs on it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.drafts import FakeDraft
from support.local import Local

from orchestrator.cluster.engine_actor import EngineActor
from orchestrator.requests import Event, GenerationRequest
from orchestrator.settings import OrchestratorSettings
from outrider.errors import CapacityError, DeadlineError, InternalError
from outrider.types import SamplingParams, StopConditions
from outrider.v1 import draft_pb2, draft_pb2_grpc, verify_pb2, verify_pb2_grpc
from outrider.wire import calls
from outrider.wire.errors import from_rpc_error
from verify_service import servicer as verify_servicer

REQUEST = GenerationRequest("r", (1,), SamplingParams(), StopConditions(4))


class BrokenEngine:
    async def start(self) -> None:
        return

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        raise RuntimeError("a secret of the engine")
        yield


async def test_a_bug_in_an_engine_ends_its_request_under_ray_too() -> None:
    actor = EngineActor(OrchestratorSettings(ray="local", draft=[]))
    actor._engine = BrokenEngine()  # type: ignore[assignment]
    outcomes = [outcome async for outcome in actor.generate(REQUEST)]
    [error] = outcomes
    assert isinstance(error, InternalError)
    assert "secret" not in error.message


async def test_a_bug_in_reading_a_stream_is_an_error_and_not_its_end(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret of the reader")

    monkeypatch.setattr(verify_servicer, "policy_from", broken)
    verify = await local.verify("scripted:vocab=64,step_ms=20")
    stub = verify_pb2_grpc.VerifyServiceStub(await local.channel(verify.address))
    call: Any = stub.Verify()
    opening = verify_pb2.VerifyOpen(session_id="s", prompt_ids=[1])
    opening.sampling.seed = 1
    opening.stop.max_tokens = 4000
    await call.write(verify_pb2.VerifyRequest(open=opening))
    await call.write(verify_pb2.VerifyRequest(policy=verify_pb2.ReadinessPolicy()))
    with pytest.raises(Exception) as caught:
        async for _ in call:
            pass
    error = from_rpc_error(caught.value)  # type: ignore[arg-type]
    assert isinstance(error, InternalError)
    assert "secret" not in error.message
    assert error.metadata["error_id"] in error.message


@pytest.mark.parametrize("side", ["draft", "verify"])
async def test_a_stream_on_which_nothing_is_sent_is_ended(
    local: Local, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    monkeypatch.setattr(calls, "FIRST_MESSAGE_S", 0.05)
    if side == "draft":
        address = (await local.draft()).address
        call: Any = draft_pb2_grpc.DraftServiceStub(await local.channel(address)).Draft()
    else:
        address = (await local.verify()).address
        call = verify_pb2_grpc.VerifyServiceStub(await local.channel(address)).Verify()
    with pytest.raises(Exception) as caught:
        await call.read()
    assert isinstance(from_rpc_error(caught.value), DeadlineError)  # type: ignore[arg-type]


class NeverAsked(FakeDraft):
    async def session(
        self, opening: draft_pb2.DraftOpen, requests: AsyncIterator[draft_pb2.DraftRequest]
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        raise AssertionError("a refused request reached the draft")
        yield


async def test_a_request_that_the_verifier_has_no_room_for_costs_no_draft_anything(
    local: Local,
) -> None:
    draft = NeverAsked()
    verify = await local.verify(kv_tokens=64)
    client = await local.orchestrator(verify, {"d": await local.fake_draft(draft)})
    with pytest.raises(CapacityError, match="--kv-tokens"):
        await client.generate([1, 2], max_tokens=4000).result()
    assert (draft.sessions, verify.model.passes) == (0, 0)
    assert draft.handshakes > 0


async def test_a_policy_raises_no_rows_beyond_what_room_was_promised_for(local: Local) -> None:
    verify = await local.verify("scripted:vocab=64,step_ms=5")
    stub = verify_pb2_grpc.VerifyServiceStub(await local.channel(verify.address))
    call: Any = stub.Verify()
    opening = verify_pb2.VerifyOpen(session_id="s", prompt_ids=[1])
    opening.sampling.seed = 1
    opening.stop.max_tokens = 4000
    opening.policy.max_rows = 3
    await call.write(verify_pb2.VerifyRequest(open=opening))
    assert (await call.read()).HasField("opened")
    [session] = verify.scheduler._sessions.values()
    raised = verify_pb2.ReadinessPolicy(max_rows=4096, min_depth=1, max_wait_us=1)
    await call.write(verify_pb2.VerifyRequest(policy=raised))
    while session.policy.min_depth != 1:
        await call.read()
    assert session.policy.max_rows == 3
    call.cancel()
