"""Diagnose through real services: facts, lines, and what is in the way of one that is gone."""

import socket
from typing import Any

import grpc
import pytest
from support.drafts import FakeDraft
from support.local import Local
from support.processes import Processes

from outrider.client import Client
from outrider.errors import InvalidArgumentError
from outrider.host import ModelLoad
from outrider.types import ModelInfo
from outrider.v1 import common_pb2, draft_pb2, draft_pb2_grpc, verify_pb2, verify_pb2_grpc
from outrider.wire import diagnosing
from outrider.wire.diagnosing import MAX_PAYLOAD_BYTES, Teller
from outrider.wire.draft_client import DraftClient
from outrider.wire.errors import from_rpc_error

TARGET = "scripted:vocab=64"


def unused_address() -> str:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{held.getsockname()[1]}"


async def test_every_service_tells_its_machine_and_its_model(local: Local) -> None:
    verify = await local.verify(TARGET, kv_tokens=4096, max_sessions=3)
    draft = await local.draft("scripted:vocab=64,drift=0.1", kv_tokens=2048)
    client = await local.orchestrator(
        verify, {"a": draft}, num_speculative_tokens=5, run_ahead=False, max_wait_ms=2
    )
    found = await client.diagnose()
    assert found.verify.model is not None and found.verify.host is not None
    assert found.verify.model.model_name == TARGET
    assert (found.verify.host.kv_tokens, found.verify.host.max_sessions) == (4096, 3)
    (told,) = found.drafts
    assert told.name == "a" and told.problem == ""
    assert told.host is not None and told.host.kv_tokens == 2048
    for service in (found.verify, told):
        assert service.host is not None and service.host.cores >= 1
        assert service.round_trip_us > 0
        assert service.sent_bytes_per_s > 0 and service.received_bytes_per_s > 0
        assert abs(service.clock_offset_us) < 1_000_000, "it is the same clock"
    assert found.limits.num_speculative_tokens == 5
    assert not found.limits.run_ahead and found.limits.max_wait_us == 2000
    assert found.limits.wait_nodes is None


async def test_bandwidth_is_measured_only_where_it_is_asked_for(local: Local) -> None:
    client = await local.orchestrator(await local.verify(TARGET))
    found = await client.diagnose(with_bandwidth=False)
    assert found.verify.round_trip_us > 0
    assert found.verify.sent_bytes_per_s == found.verify.received_bytes_per_s == 0
    assert found.drafts == ()


async def test_services_that_are_gone_say_what_is_in_the_way(local: Local) -> None:
    verify = await local.verify(TARGET)
    client = await local.orchestrator(
        verify, {"gone": unused_address(), "unknown": "no-such-name.invalid:7072"}
    )
    found = await client.diagnose(with_bandwidth=False)
    problems = {draft.name: draft.problem for draft in found.drafts}
    assert "refuses port" in problems["gone"]
    assert "is not known here" in problems["unknown"]
    assert found.verify.problem == "" and found.verify.host is not None


async def test_a_service_without_diagnose_is_told_apart(local: Local) -> None:
    class Old(draft_pb2_grpc.DraftServiceServicer):
        async def GetModelInfo(self, request, context):  # noqa: N802 - gRPC names its methods
            from outrider.wire.convert import info_to

            info = ModelInfo("old", "scripted", "", 0, 8192)
            return draft_pb2.DraftServiceGetModelInfoResponse(model=info_to(info, 1))

    client = await local.orchestrator(
        await local.verify(TARGET), {"old": await local.fake_draft(Old())}
    )
    (told,) = (await client.diagnose(with_bandwidth=False)).drafts
    assert told.host is None and "does not offer this call" in told.problem


async def test_too_many_bytes_are_refused(local: Local) -> None:
    verify = await local.verify(TARGET)
    stub = verify_pb2_grpc.VerifyServiceStub(await local.channel(verify.address))
    for request in (
        verify_pb2.VerifyServiceDiagnoseRequest(payload=bytes(MAX_PAYLOAD_BYTES + 1)),
        verify_pb2.VerifyServiceDiagnoseRequest(reply_bytes=MAX_PAYLOAD_BYTES + 1),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Diagnose(request)
        assert isinstance(from_rpc_error(refused.value), InvalidArgumentError)


async def test_as_many_bytes_come_back_as_were_asked_for(local: Local) -> None:
    draft = await local.draft(TARGET)
    stub = draft_pb2_grpc.DraftServiceStub(await local.channel(draft.address))
    answer = await stub.Diagnose(draft_pb2.DraftServiceDiagnoseRequest(reply_bytes=12_345))
    assert len(answer.payload) == 12_345


async def test_a_service_that_sends_other_bytes_is_not_measured(local: Local) -> None:
    class Stingy(draft_pb2_grpc.DraftServiceServicer):
        async def Diagnose(self, request, context):  # noqa: N802 - gRPC names its methods
            return draft_pb2.DraftServiceDiagnoseResponse(payload=b"x")

    address = await local.fake_draft(Stingy())
    client = DraftClient(await local.channel(address), address)
    with pytest.raises(Exception, match="1 bytes where 9 were wanted"):
        await client.diagnose(b"", 9, timeout_s=10.0)


async def test_facts_are_gathered_once_for_all_calls_of_a_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gathered = []

    def gather(load: ModelLoad) -> object:
        gathered.append(load)
        return real(load)

    real = diagnosing.host_facts
    monkeypatch.setattr(diagnosing, "host_facts", gather)
    monkeypatch.setattr(diagnosing, "_FACTS_HOLD_S", 3600.0)
    teller = Teller(ModelLoad(kv_tokens=7))
    first, _ = await teller.tell(0, 0)
    second, payload = await teller.tell(0, 3)
    assert len(gathered) == 1 and first.kv_tokens == 7 and payload == bytes(3)
    assert second.clock_us >= first.clock_us > 0


def test_a_ray_actor_diagnoses_too(processes: Processes) -> None:
    verify, draft = processes.verify(TARGET), processes.draft(TARGET)
    front = processes.orchestrator(verify, {"a": draft}, ray="embedded")
    with Client(front.address, timeout_s=60) as client:
        found = client.diagnose(with_bandwidth=False)
    assert found.verify.host is not None and found.drafts[0].host is not None


class BoastingDraft(FakeDraft):
    """Tells of a clock beyond all time and of more than anybody has."""

    async def Diagnose(self, request: Any, context: Any) -> Any:  # noqa: N802
        host = common_pb2.HostFacts(
            clock_us=2**64 - 1,
            gpus=[common_pb2.GpuFacts(name="x")] * 1000,
            versions=[common_pb2.LibraryVersion(name="y")] * 1000,
        )
        payload = bytes(request.reply_bytes)
        return draft_pb2.DraftServiceDiagnoseResponse(host=host, payload=payload)


async def test_absurd_facts_of_one_service_do_not_spoil_the_diagnosis(local: Local) -> None:
    draft = await local.fake_draft(BoastingDraft())
    client = await local.orchestrator(await local.verify(TARGET), {"a": draft})
    (told,) = (await client.diagnose()).drafts
    assert told.host is not None
    assert len(told.host.gpus) == len(told.host.versions) == 64
    assert told.clock_offset_us > 0
