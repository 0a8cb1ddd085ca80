"""Three services that know each other by certificate answer as they do in plain text, and each lets
in only who has a role for it."""

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs
from support.local import Local, Running
from support.models import alone
from support.processes import Processes, ServiceProcess
from tls_issuing import Issuer

from orchestrator.peers import Peers
from outrider import AsyncClient, Client
from outrider.errors import NotAllowedError
from outrider.identity import Role, read_identity
from outrider.models.scripted import ScriptedLaw
from outrider.types import SamplingParams
from outrider.v1 import verify_pb2_grpc
from outrider.wire.channels import open_channel
from outrider.wire.draft_client import DraftClient
from outrider.wire.errors import from_rpc_error
from outrider.wire.tls import Secured
from outrider.wire.verify_client import VerifyClient

LAW = ScriptedLaw(vocab=64)
TARGET = "scripted:vocab=64"
PROMPT = [7]
SAMPLING = SamplingParams(temperature=1.0, seed=4)
EXPECTED = alone(LAW, PROMPT, 48, SAMPLING)


async def answered(client: AsyncClient, drafts: bool = True) -> None:
    """Asks, and holds the answer against the target's own."""
    result = await client.generate(PROMPT, max_tokens=48, temperature=1.0, seed=4).result()
    assert [token.id for token in result.tokens] == EXPECTED
    assert (result.stats.accepted_tokens > 0) is drafts


async def test_an_answer_through_three_services_is_the_targets(local: Local, ours: Issuer) -> None:
    verify = await local.verify(TARGET, tls=ours.folder("verify"))
    draft = await local.draft(TARGET, tls=ours.as_secret("draft"))
    client = await local.orchestrator(
        verify,
        {"a": draft},
        tls=ours.folder("orchestrator"),
        client_tls=ours.folder("client"),
        wait_nodes=2,
        max_wait_ms=5000,
    )
    await answered(client)
    found = await client.diagnose(with_bandwidth=False)
    assert found.verify.is_encrypted
    assert found.drafts[0].is_encrypted


async def test_services_on_loopback_may_speak_plain_text_behind_it(
    local: Local, ours: Issuer
) -> None:
    client = await local.orchestrator(
        await local.verify(TARGET),
        tls=ours.folder("orchestrator"),
        client_tls=ours.folder("client"),
        plaintext_loopback=True,
    )
    await answered(client, drafts=False)
    assert not (await client.diagnose(with_bandwidth=False)).verify.is_encrypted


async def call(service: Role, address: str, tls: str) -> None:
    """One call of a service by the owner of a folder."""
    if service is Role.ORCHESTRATOR:
        async with AsyncClient(address, timeout_s=10, tls=tls) as client:
            await client.get_model_info()
        return
    async with open_channel(address, Secured(read_identity(tls), service)) as channel:
        make = VerifyClient if service is Role.VERIFY else DraftClient
        await make(channel, address).model_info(10)


MAY_CALL = {
    ("orchestrator", "verify"),
    ("orchestrator", "draft"),
    ("orchestrator", "orchestrator"),
    ("client", "orchestrator"),
}


@pytest.mark.parametrize("service", ["draft", "verify", "orchestrator"])
async def test_only_who_has_a_role_for_a_service_may_call_it(
    local: Local, ours: Issuer, service: str
) -> None:
    verify: Running = await local.verify(TARGET, tls=ours.folder("verify"))
    if service == "draft":
        address = (await local.draft(TARGET, tls=ours.folder("draft"))).address
    elif service == "verify":
        address = verify.address
    else:
        address = (await local.orchestrator(verify, tls=ours.folder("orchestrator"))).address
    for caller in Role:
        if (caller.value, service) in MAY_CALL:
            await call(Role(service), address, ours.folder(caller.value))
            continue
        with capture_logs() as logs, pytest.raises(NotAllowedError) as refused:
            await call(Role(service), address, ours.folder(caller.value))
        assert f"has the role {caller.value}" in refused.value.message
        assert [line["event"] for line in logs] == ["caller_refused"]


async def test_a_stream_of_the_wrong_role_is_refused_before_it_opens_a_session(
    local: Local, ours: Issuer
) -> None:
    verify = await local.verify(TARGET, tls=ours.folder("verify"))
    secured = Secured(read_identity(ours.folder("draft")), Role.VERIFY)
    async with open_channel(verify.address, secured) as channel:
        stub = verify_pb2_grpc.VerifyServiceStub(channel)
        # Nothing is sent: it is refused for who calls, whatever it says.
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await stub.Verify(timeout=10).read()
    assert isinstance(from_rpc_error(failure.value), NotAllowedError)
    assert verify.model.opened == 0


@pytest.mark.usefixtures("impatient")
async def test_a_drafts_certificate_cannot_stand_in_for_the_verifiers(
    local: Local, ours: Issuer
) -> None:
    imposter = await local.draft(TARGET, tls=ours.folder("draft"))
    folder = ours.folder("orchestrator")
    peers = Peers(imposter.address, [f"a={imposter.address}"], lambda address: folder)
    await peers.probe()
    assert peers.drafts[0].is_usable
    assert "is not one of role verify" in peers.verify.problem
    await peers.stop()


@pytest.fixture(scope="module")
def deployed(module_processes: Processes, ours: Issuer) -> dict[str, ServiceProcess]:
    """Real processes; the engine is an actor of Ray. The verifier's certificate runs out soon."""
    verify = module_processes.verify(TARGET, "--tls", ours.folder("verify", days=9))
    draft = module_processes.draft(TARGET, "--tls", ours.folder("draft"))
    orchestrator = module_processes.orchestrator(
        verify, {"a": draft}, "--tls", ours.folder("orchestrator"), ray="embedded"
    )
    return {"verify": verify, "draft": draft, "orchestrator": orchestrator}


def test_real_processes_with_an_engine_in_ray_answer_by_tls(
    deployed: dict[str, ServiceProcess], ours: Issuer
) -> None:
    address = deployed["orchestrator"].address
    with Client(address, tls=ours.folder("client"), timeout_s=60) as client:
        result = client.generate(PROMPT, max_tokens=48, temperature=1.0, seed=4).result()
        assert client.get_cluster().drafts[0].usable
    assert [token.id for token in result.tokens] == EXPECTED


async def test_health_is_told_to_everybody_with_a_certificate(
    deployed: dict[str, ServiceProcess], ours: Issuer
) -> None:
    secured = Secured(read_identity(ours.folder("draft")), Role.VERIFY)
    async with open_channel(deployed["verify"].address, secured) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_certificate_that_runs_out_soon_is_in_the_log(
    deployed: dict[str, ServiceProcess],
) -> None:
    deployed["verify"].wait_for_log("certificate_expires")
    assert deployed["draft"].address
    assert "certificate_expires" not in deployed["draft"].log
