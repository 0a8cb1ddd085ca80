"""The command line by TLS: `--tls`, `OUTRIDER_TLS`, and what is told without them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import Processes, ServiceProcess
from tls_issuing import Issuer

from draft_service.settings import DraftSettings
from orchestrator.settings import OrchestratorSettings
from outrider.settings import read_settings

COMMAND = (sys.executable, "-c", "from outrider.command import main; raise SystemExit(main())")


@pytest.fixture(scope="module")
def orchestrator(module_processes: Processes, ours: Issuer) -> Iterator[ServiceProcess]:
    """An orchestrator with TLS before a verifier without."""
    verify = module_processes.verify("scripted:vocab=62")
    tls = ("--tls", ours.folder("orchestrator"), "--plaintext-loopback")
    yield module_processes.orchestrator(verify, {}, *tls)


def run(*arguments: str, tls: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OUTRIDER_TLS": tls}
    return subprocess.run(
        [*COMMAND, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def test_a_folder_is_given_by_flag_or_environment(
    orchestrator: ServiceProcess, ours: Issuer
) -> None:
    address = ("--address", orchestrator.address)
    folder = ours.folder("client")
    answer = run("generate", "hello", *address, "--max-tokens", "4", "--tls", folder)
    assert answer.returncode == 0, answer.stderr
    cluster = run("ps", *address, "--json", tls=folder)
    assert json.loads(cluster.stdout)["verify"]["usable"]


def test_who_speaks_plain_text_to_tls_is_told_what_to_give(orchestrator: ServiceProcess) -> None:
    told = run("ps", "--address", orchestrator.address)
    assert (told.returncode, told.stdout) == (1, "")
    assert "--tls" in told.stderr
    report = run("doctor", "--address", orchestrator.address)
    assert "speaks TLS and this side does not" in report.stdout
    assert "outrider certs issue" in report.stdout


def test_a_folder_that_is_none_is_told_before_anything_is_sent() -> None:
    told = run("generate", "hello", "--tls", "no/folder")
    assert told.returncode == 2
    assert "there is no folder no/folder" in told.stderr


@pytest.mark.parametrize("flags", [("--tls", "some/folder"), ("--allow-plaintext",)])
def test_beyond_loopback_a_certificate_does_as_well_as_the_leave_for_plain_text(
    flags: tuple[str, ...],
) -> None:
    assert read_settings(DraftSettings, ("--host", "0.0.0.0", *flags), "draft").host == "0.0.0.0"


def test_plain_http_beyond_loopback_has_to_be_meant_also_beside_tls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = ("--host", "0.0.0.0", "--tls", "some", "--http-tls", "none", "--allow-no-api-key")
    with pytest.raises(SystemExit):
        read_settings(OrchestratorSettings, flags, "orchestrator")
    told = capsys.readouterr().err
    assert "HTTP would be plain text" in told
    assert "--allow-plaintext" in told
    settings = read_settings(OrchestratorSettings, (*flags, "--allow-plaintext"), "orchestrator")
    assert (settings.https, settings.tls) == ("", "some")


def test_plain_text_to_loopback_leaves_other_addresses_under_tls() -> None:
    flags = ("--tls", "some", "--plaintext-loopback")
    settings = read_settings(OrchestratorSettings, flags, "orchestrator")
    addresses = ("127.0.0.1:1", "[::1]:1", "localhost:1", "attic:1", "10.0.0.1:1")
    assert [settings.tls_to(address) for address in addresses] == ["", "", "", "some", "some"]
    without = read_settings(OrchestratorSettings, flags[:2], "orchestrator")
    assert without.tls_to("127.0.0.1:1") == "some"


def test_a_folder_named_as_by_cert_manager_fits(ours: Issuer, tmp_path: Path) -> None:
    from outrider.identity import read_identity

    assert read_identity(ours.as_secret("draft")).certificate.startswith(b"-----BEGIN")
