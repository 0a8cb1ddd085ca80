"""Every way in which two sides can fail to agree on TLS: told where the call is made, with what to
do, and soon."""

import asyncio
import re
import socket
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from structlog.testing import capture_logs
from support.local import Local
from support.processes import Processes
from support.waiting import until
from tls_issuing import Issuer

from orchestrator.peers import Peers
from outrider import AsyncClient, Client
from outrider.certificates import issue
from outrider.errors import InvalidArgumentError, NotAllowedError, UnavailableError
from outrider.identity import Role, read_identity
from outrider.v1 import verify_pb2, verify_pb2_grpc
from outrider.wire.gatekeeper import Gatekeeper
from outrider.wire.handshakes import tls_problem
from outrider.wire.tls import secured_by

TARGET = "scripted:vocab=64"


class Case:
    """Whose certificates a service and its caller have, '' for plain text, and what is told."""

    def __init__(
        self,
        service: Callable[[Issuer, Issuer], str],
        caller: Callable[[Issuer, Issuer], str],
        says: str,
        client_says: str,
    ) -> None:
        self.service = service
        self.caller = caller
        self.says = says
        self.client_says = client_says


def plain(ours: Issuer, foreign: Issuer) -> str:
    return ""


CASES = {
    "a plain service": Case(
        plain,
        lambda ours, foreign: ours.folder("orchestrator"),
        "does not speak TLS and this side does; start the service with --tls",
        "does not speak TLS",
    ),
    "a plain caller": Case(
        lambda ours, foreign: ours.folder("orchestrator"),
        plain,
        "speaks TLS and this side does not; give a folder with a certificate",
        "hangs up at once; it wants TLS",
    ),
    "a service of another CA": Case(
        lambda ours, foreign: foreign.folder("orchestrator"),
        lambda ours, foreign: ours.folder("orchestrator"),
        "is not of the CA in .*ca.pem",
        "a certificate that is not accepted here",
    ),
    "a caller of another CA": Case(
        lambda ours, foreign: ours.folder("orchestrator"),
        lambda ours, foreign: _trusting(ours, foreign.folder("orchestrator")),
        "refuses the certificate in .*outrider certs show",
        "hangs up at once",
    ),
    "an expired service": Case(
        lambda ours, foreign: ours.expired("orchestrator"),
        lambda ours, foreign: ours.folder("orchestrator"),
        "the certificate of .* has expired; issue a new one",
        "not accepted here.*has expired",
    ),
    "an expired caller": Case(
        lambda ours, foreign: ours.folder("orchestrator"),
        lambda ours, foreign: ours.expired("orchestrator"),
        "refuses the certificate in .*expired",
        "hangs up at once",
    ),
    "a service of another role": Case(
        lambda ours, foreign: ours.folder("draft"),
        lambda ours, foreign: ours.folder("orchestrator"),
        "is not one of role orchestrator",
        "another role",
    ),
}


def _trusting(issuer: Issuer, folder: str) -> str:
    (Path(folder) / "ca.pem").write_bytes(issuer.authority.certificate)
    return folder


async def served(tls: str) -> tuple[grpc.aio.Server, str]:
    """A server with any certificate at all; ours refuse to start with a wrong one."""
    server = grpc.aio.server()
    verify_pb2_grpc.add_VerifyServiceServicer_to_server(
        verify_pb2_grpc.VerifyServiceServicer(), server
    )
    if tls:
        own = read_identity(tls)
        pairs = [(own.key, own.certificate)]
        credentials = grpc.ssl_server_credentials(pairs, own.ca, require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, f"127.0.0.1:{port}"


@pytest.mark.parametrize("name", CASES)
async def test_what_is_wrong_is_told_with_what_to_do(
    name: str, ours: Issuer, foreign: Issuer
) -> None:
    case = CASES[name]
    server, address = await served(case.service(ours, foreign))
    caller = case.caller(ours, foreign)
    secured = secured_by(caller, Role.ORCHESTRATOR)
    told = await asyncio.to_thread(tls_problem, address, secured)
    assert address in told
    assert re.search(case.says, told), told
    async with AsyncClient(address, timeout_s=20, retries=0, tls=caller) as client:
        with pytest.raises(UnavailableError, match=case.client_says) as failure:
            await client.get_model_info()
    assert address in failure.value.message

    def ask() -> None:
        with Client(address, timeout_s=20, retries=0, tls=caller) as sync_client:
            sync_client.get_model_info()

    with pytest.raises(UnavailableError, match=case.client_says):
        await asyncio.to_thread(ask)
    await server.stop(None)


@pytest.mark.usefixtures("impatient")
async def test_an_orchestrator_tells_it_of_its_services(
    local: Local, ours: Issuer, foreign: Issuer
) -> None:
    verify = await local.verify(TARGET, tls=ours.folder("verify"))
    draft = await local.draft(TARGET)
    folder = ours.folder("orchestrator")
    peers = Peers(verify.address, [f"a={draft.address}"], lambda address: folder)
    await peers.probe()
    assert peers.verify.is_usable
    assert "does not speak TLS" in peers.drafts[0].problem
    await peers.stop()
    plain_peers = Peers(verify.address, [])
    await plain_peers.probe()
    with pytest.raises(UnavailableError, match="speaks TLS and this side does not"):
        await plain_peers.verify.ready()
    await plain_peers.stop()


async def test_a_caller_without_a_certificate_is_not_connected(local: Local, ours: Issuer) -> None:
    verify = await local.verify(TARGET, tls=ours.folder("verify"))
    only_ca = grpc.ssl_channel_credentials(ours.authority.certificate)
    options = [("grpc.ssl_target_name_override", Role.VERIFY.dns_name)]
    async with grpc.aio.secure_channel(verify.address, only_ca, options) as channel:
        stub = verify_pb2_grpc.VerifyServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await stub.GetModelInfo(verify_pb2.VerifyServiceGetModelInfoRequest(), timeout=20)
    assert failure.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_what_is_not_tls_is_not_blamed_on_it(local: Local, ours: Issuer) -> None:
    verify = await local.verify(TARGET, tls=ours.folder("verify"))
    plain_verify = await local.verify(TARGET)
    secured = secured_by(ours.folder("orchestrator"), Role.VERIFY)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for found in (
            await asyncio.to_thread(tls_problem, verify.address, secured),
            await asyncio.to_thread(tls_problem, plain_verify.address, None),
            await asyncio.to_thread(tls_problem, "127.0.0.1:1", secured),
            await asyncio.to_thread(tls_problem, address, secured, 0.2),
            await asyncio.to_thread(tls_problem, address, None, 0.2),
        ):
            assert found == ""


SPOILED: dict[str, tuple[Callable[[Path, Issuer, Issuer], object], str]] = {
    "no folder": (
        lambda folder, ours, foreign: folder.rename(folder.with_name("elsewhere")),
        "there is no folder .*outrider certs issue",
    ),
    "no key": (
        lambda folder, ours, foreign: (folder / "key.pem").unlink(),
        "no certificate with a",
    ),
    "no CA": (lambda folder, ours, foreign: (folder / "ca.pem").unlink(), "has no ca.pem"),
    "another key": (
        lambda folder, ours, foreign: (folder / "key.pem").write_bytes(
            Path(ours.folder("verify"), "key.pem").read_bytes()
        ),
        "cannot be used .*its own key",
    ),
    "no PEM": (
        lambda folder, ours, foreign: (folder / "cert.pem").write_text("secret"),
        "cannot be used",
    ),
    "a CA that is none": (
        lambda folder, ours, foreign: (folder / "ca.pem").write_text(""),
        "cannot be used",
    ),
    "another CA": (
        lambda folder, ours, foreign: (folder / "ca.pem").write_bytes(
            foreign.authority.certificate
        ),
        "is not accepted by those who trust its CA",
    ),
    "a client's": (
        lambda folder, ours, foreign: ours.write(folder, "client"),
        "is not accepted by those who trust its CA",
    ),
    "a draft's": (
        lambda folder, ours, foreign: ours.write(folder, "draft"),
        "has draft, and this service is verify; .*--role verify",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_service_does_not_start_with_what_no_caller_would_accept(
    name: str, tls_folder: Path, ours: Issuer, foreign: Issuer
) -> None:
    spoil, says = SPOILED[name]
    spoil(tls_folder, ours, foreign)
    with pytest.raises(InvalidArgumentError, match=says):
        Gatekeeper(str(tls_folder), Role.VERIFY)


def test_a_service_does_not_start_with_an_expired_certificate(ours: Issuer) -> None:
    with pytest.raises(InvalidArgumentError, match=r"expired; issue a new one"):
        Gatekeeper(ours.expired("verify"), Role.VERIFY)


def test_a_service_says_so_in_its_log_before_it_loads_a_model(
    processes: Processes, ours: Issuer
) -> None:
    verify = processes.verify("no/such-model", "--tls", ours.folder("draft"))
    assert verify.wait() == 1
    assert "cannot_serve" in verify.log
    assert "this service is verify" in verify.log


async def test_a_renewed_certificate_is_shown_without_a_restart(
    local: Local, ours: Issuer, foreign: Issuer, tls_folder: Path
) -> None:
    verify = await local.verify(TARGET, tls=str(tls_folder))
    strangers = secured_by(foreign.folder("orchestrator"), Role.VERIFY)
    assert "is not of the CA" in await asyncio.to_thread(tls_problem, verify.address, strangers)
    foreign.write(tls_folder, "verify")
    with capture_logs() as logs:
        assert await asyncio.to_thread(tls_problem, verify.address, strangers) == ""
    assert [line["event"] for line in logs] == ["certificate_renewed"]


async def test_files_that_do_not_fit_together_leave_the_old_certificate_in_place(
    local: Local, ours: Issuer, tls_folder: Path
) -> None:
    verify = await local.verify(TARGET, tls=str(tls_folder))
    caller = secured_by(ours.folder("orchestrator"), Role.VERIFY)
    certificate = issue(ours.authority, Role.VERIFY, "v", (), 9, datetime.now(timezone.utc))
    (tls_folder / "cert.pem").write_bytes(certificate.certificate)
    with capture_logs() as logs:
        assert await asyncio.to_thread(tls_problem, verify.address, caller) == ""
    assert [line["event"] for line in logs] == ["certificate_not_renewed"]
    ours.write(tls_folder, "verify")
    with capture_logs() as logs:
        assert await asyncio.to_thread(tls_problem, verify.address, caller) == ""
    assert [line["event"] for line in logs] == ["certificate_renewed"]


@pytest.mark.usefixtures("impatient")
async def test_an_orchestrator_takes_its_renewed_certificate_without_a_restart(
    local: Local, ours: Issuer
) -> None:
    verify = await local.verify(TARGET, tls=ours.folder("verify"))
    folder = ours.expired("orchestrator")
    peers = Peers(verify.address, [], lambda address: folder)
    await peers.probe()
    assert "expired" in peers.verify.problem
    ours.write(folder, "orchestrator")
    await peers.probe()
    await peers.probe()
    assert peers.verify.is_usable
    await peers.stop()


@pytest.mark.parametrize(("days", "warns"), [(29, True), (31, False)])
async def test_a_month_before_it_runs_out_the_log_says_so(
    ours: Issuer, days: int, warns: bool
) -> None:
    gatekeeper = Gatekeeper(ours.folder("verify", days=days), Role.VERIFY)
    with capture_logs() as logs:
        watching = asyncio.create_task(gatekeeper.watch())
        if warns:
            await until(lambda: bool(logs), "a warning")
            assert logs[0]["event"] == "certificate_expires"
            assert logs[0]["days_left"] == days - 1
        else:
            await asyncio.sleep(0)
            assert not logs
        watching.cancel()


def test_a_client_tells_what_is_wrong_with_its_folder(ours: Issuer, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="there is no folder"):
        Client("localhost:1", tls=tmp_path / "none")
    with pytest.raises(InvalidArgumentError, match="tls is a int; give a folder"):
        Client("localhost:1", tls=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="tls and credentials are given"):
        Client("localhost:1", tls=ours.folder("client"), credentials=grpc.ssl_channel_credentials())


class Caller:
    """A call as gRPC tells of it, by a certificate with names of each kind."""

    def __init__(self, **names: list[str]) -> None:
        self._names = {kind: [name.encode() for name in each] for kind, each in names.items()}

    def auth_context(self) -> dict[str, list[bytes]]:
        every = [name for each in self._names.values() for name in each]
        return {**self._names, "x509_subject_alternative_name": every}

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


ROLE, OTHER = Role.ORCHESTRATOR.dns_name, Role.DRAFT.dns_name


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"peer_uri": [ROLE]},
        {"peer_email": [ROLE]},
        {"peer_dns": [OTHER], "peer_uri": [ROLE]},
        {"peer_dns": [OTHER, ROLE]},
        {"peer_dns": ["*.outrider.internal"]},
    ],
    ids=str,
)
def test_only_a_single_role_by_dns_name_lets_a_caller_in(
    ours: Issuer, names: dict[str, list[str]]
) -> None:
    gatekeeper = Gatekeeper(ours.folder("verify"), Role.VERIFY)
    gatekeeper.admit(cast(Any, Caller(peer_dns=[ROLE, "attic"], peer_uri=[OTHER])), "Verify")
    with pytest.raises(NotAllowedError, match="takes calls of orchestrator only"):
        gatekeeper.admit(cast(Any, Caller(**names)), "Verify")


def test_a_caller_whose_own_files_are_broken_is_told_so(ours: Issuer) -> None:
    folder = ours.folder("orchestrator")
    secured = secured_by(folder, Role.VERIFY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (Path(folder) / "key.pem").unlink()
        told = tls_problem(address, secured)
    assert told.startswith(f"the certificate in {folder} cannot be used just now")
