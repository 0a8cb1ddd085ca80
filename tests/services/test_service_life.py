"""How the processes start, say what they are, and end."""

import asyncio
import signal
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.models import alone
from support.processes import Processes, ServiceProcess
from support.waiting import until_asked

from outrider import AsyncClient
from outrider.errors import UnavailableError
from outrider.models.scripted import ScriptedLaw
from outrider.v1 import draft_pb2, draft_pb2_grpc, verify_pb2, verify_pb2_grpc
from outrider.wire.errors import from_rpc_error

LAW = ScriptedLaw(vocab=64)
MODEL = "scripted:vocab=64"
SLOW = "scripted:vocab=64,step_ms=50"
ROLES = {
    "verify": "outrider.v1.VerifyService",
    "draft": "outrider.v1.DraftService",
    "orchestrator": "outrider.v1.OrchestratorService",
}
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture(scope="module")
def running(module_processes: Processes) -> Iterator[dict[str, ServiceProcess]]:
    verify, draft = module_processes.verify(MODEL), module_processes.draft(MODEL)
    orchestrator = module_processes.orchestrator(verify, {"a": draft})
    yield {"verify": verify, "draft": draft, "orchestrator": orchestrator}


async def health(address: str, service: str = "") -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
        return int(answer.status)


@pytest.mark.parametrize("role", ROLES)
async def test_every_server_reports_its_health(
    running: dict[str, ServiceProcess], role: str
) -> None:
    assert await health(running[role].address) == SERVING
    assert await health(running[role].address, ROLES[role]) == SERVING
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await health(running[role].address, "outrider.v1.Nonsense")
    assert failure.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("role", ROLES)
async def test_every_server_describes_itself_by_reflection(
    running: dict[str, ServiceProcess], role: str
) -> None:
    async with grpc.aio.insecure_channel(running[role].address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")]), timeout=10
        )
        answer = await call.read()
    names = {service.name for service in answer.list_services_response.service}
    assert names == {
        ROLES[role],
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


@pytest.mark.parametrize("role", ["verify", "draft"])
async def test_errors_of_every_server_carry_details(
    running: dict[str, ServiceProcess], role: str
) -> None:
    async with grpc.aio.insecure_channel(running[role].address) as channel:
        if role == "verify":
            call = verify_pb2_grpc.VerifyServiceStub(channel).Verify(
                iter([verify_pb2.VerifyRequest()]), timeout=10
            )
        else:
            call = draft_pb2_grpc.DraftServiceStub(channel).Draft(
                iter([draft_pb2.DraftRequest()]), timeout=10
            )
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await call.read()
    assert "grpc-status-details-bin" in dict(failure.value.trailing_metadata() or ())
    assert "starts with open" in from_rpc_error(failure.value).message


@pytest.mark.parametrize("module", ["verify_service", "draft_service", "orchestrator"])
async def test_a_port_in_use_is_said_and_ends_the_process(
    running: dict[str, ServiceProcess], processes: Processes, module: str
) -> None:
    port = running["verify"].port
    arguments = (
        ("--ray", "local", "--verify", running["verify"].address, "--draft", "none")
        if module == "orchestrator"
        else ("--model", MODEL)
    )
    service = processes.start(module, *arguments, port=port)
    assert service.wait() == 1
    assert "port is in use" in service.log
    assert str(port) in service.log


@pytest.mark.parametrize(
    ("model", "word"),
    [
        ("/no/such/folder", "/no/such/folder"),
        ("nonsense:x", "nonsense"),
        ("scripted:vocab=1", "vocab"),
        ("ngram:", "verify"),
    ],
)
async def test_a_model_that_cannot_be_had_is_said_and_ends_the_process(
    processes: Processes, model: str, word: str
) -> None:
    service = processes.verify(model)
    assert service.wait() == 1
    assert word in service.log
    assert "Traceback" not in service.log


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--idle-timeout-s", "0"),
        ("--idle-timeout-s", "-1"),
        ("--grace-s", "0"),
        ("--port", "70000"),
        ("--kv-tokens", "0"),
        ("--host", "0.0.0.0"),
        ("--no-such-flag", "1"),
    ],
)
async def test_a_setting_that_means_nothing_is_refused_by_name(
    processes: Processes, flag: str, value: str
) -> None:
    """Field bug 24."""
    service = processes.start("verify_service", "--model", MODEL, flag, value)
    assert service.wait() == 2
    assert flag.lstrip("-").replace("-", "") in service.log.replace("-", "").replace("_", "")


async def test_sigterm_lets_the_running_answer_end_and_refuses_new_ones(
    running: dict[str, ServiceProcess], processes: Processes
) -> None:
    verify = processes.verify(SLOW)
    orchestrator = processes.orchestrator(verify, {})
    async with AsyncClient(orchestrator.address, timeout_s=60) as client:
        generation = client.generate([7], max_tokens=30, temperature=0)
        tokens = [await anext(aiter(generation))]
        for service in (orchestrator, verify):
            service.signal(signal.SIGTERM)
            service.wait_for_log("draining")
        assert await health(orchestrator.address) == NOT_SERVING
        assert await health(verify.address) == NOT_SERVING
        with pytest.raises(UnavailableError, match="shutting down"):
            await client.generate([7], max_tokens=4).result()
        tokens += [token async for token in generation]
    assert [token.id for token in tokens] == alone(LAW, [7], 30)
    assert orchestrator.wait() == 0
    assert verify.wait() == 0
    assert "never retrieved" not in orchestrator.log + verify.log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_at_once(processes: Processes, number: signal.Signals) -> None:
    verify = processes.verify(SLOW, "--grace-s", "600")
    orchestrator = processes.orchestrator(verify, {}, "--grace-s", "600")
    async with AsyncClient(orchestrator.address, timeout_s=60) as client:
        generation = client.generate([7], max_tokens=8000, temperature=0)
        await anext(aiter(generation))
        orchestrator.signal(number)
        orchestrator.wait_for_log("draining")
        orchestrator.signal(number)
        assert orchestrator.wait() == 0
        with pytest.raises(UnavailableError):
            await generation.result()


async def test_services_end_with_the_parent_that_held_their_input(processes: Processes) -> None:
    service = processes.draft(MODEL)
    assert service.address
    assert service.process.stdin is not None
    service.process.stdin.close()
    assert service.wait() == 0


async def test_the_grace_period_ends_a_drain_that_takes_too_long(processes: Processes) -> None:
    verify = processes.verify(SLOW, "--grace-s", "0.2")
    orchestrator = processes.orchestrator(verify, {}, "--max-resumes", "0")
    async with AsyncClient(orchestrator.address, timeout_s=60) as client:
        generation = client.generate([7], max_tokens=8000, temperature=0)
        await anext(aiter(generation))
        assert await asyncio.to_thread(verify.terminate) == 0
        with pytest.raises(UnavailableError, match="tokens had arrived"):
            await generation.result()


async def test_the_cluster_view_follows_services_as_they_come(
    running: dict[str, ServiceProcess], processes: Processes
) -> None:
    async with AsyncClient(running["orchestrator"].address) as client:

        async def both() -> bool:
            cluster = await client.get_cluster()
            return cluster.verify.usable and cluster.drafts[0].usable

        await until_asked(both, "a usable cluster")
        info = await client.get_model_info()
        assert info.model_name == MODEL
        assert info.vocab_size == 64
