"""The HTTP endpoint under a certificate, which it shows and does not ask for."""

import asyncio
import ssl
from pathlib import Path

import httpx
import pytest
from support.local import Local
from tls_issuing import Issuer

from outrider.errors import InvalidArgumentError
from outrider.telemetry import metrics as metrics_module
from outrider.telemetry.metrics import Metrics, MetricsServer

TARGET = "scripted:vocab=62"


def trusting(issuer: Issuer) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=issuer.authority.certificate.decode())


async def test_whoever_trusts_the_ca_asks_by_https_without_a_certificate(
    local: Local, ours: Issuer, foreign: Issuer
) -> None:
    verify = await local.verify(TARGET, tls=ours.folder("verify"))
    folder = ours.folder("orchestrator", hosts=("127.0.0.1",))
    base = await local.gateway(verify, tls=folder)
    assert base.startswith("https://")
    async with httpx.AsyncClient(base_url=base, verify=trusting(ours), timeout=30) as http:
        answer = await http.post("/v1/completions", json={"prompt": "a", "max_tokens": 3})
        assert answer.status_code == 200
    async with httpx.AsyncClient(base_url=base, verify=trusting(foreign), timeout=30) as http:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            await http.get("/health")
    async with httpx.AsyncClient(base_url=base.replace("https", "http"), timeout=30) as http:
        with pytest.raises(httpx.TransportError):
            await http.get("/health")


async def test_https_may_have_a_certificate_of_its_own_and_takes_a_renewed_one(
    local: Local, ours: Issuer, foreign: Issuer
) -> None:
    verify = await local.verify(TARGET)
    folder = Path(foreign.folder("orchestrator", hosts=("127.0.0.1",)))
    base = await local.gateway(verify, http_tls=str(folder))

    async def shown() -> str:
        host, _, port = base.removeprefix("https://").partition(":")
        return await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))

    before = await shown()
    assert before.split() == (folder / "cert.pem").read_text().split()
    foreign.write(folder, "orchestrator", hosts=("127.0.0.1",))
    await shown()
    assert (await shown()).split() == (folder / "cert.pem").read_text().split()
    (folder / "cert.pem").write_text("broken")
    await shown()
    assert (await shown()) != before, "the last good one stays"


async def test_http_stays_plain_where_it_is_told_so(local: Local, ours: Issuer) -> None:
    verify = await local.verify(TARGET, tls=ours.folder("verify"))
    base = await local.gateway(verify, tls=ours.folder("orchestrator"), http_tls="none")
    async with httpx.AsyncClient(base_url=base, timeout=30) as http:
        assert (await http.get("/health")).status_code == 200


async def test_an_endpoint_without_its_certificate_does_not_start(
    local: Local, tmp_path: Path
) -> None:
    verify = await local.verify(TARGET)
    with pytest.raises(InvalidArgumentError, match="has no certificate with a key"):
        await local.gateway(verify, http_tls=str(tmp_path))


async def test_metrics_are_not_kept_by_those_who_say_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics_module, "SILENCE_S", 0.2)
    server = await asyncio.to_thread(MetricsServer, Metrics("verify").registry, "127.0.0.1", 0)
    host, _, port = server.address.partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await asyncio.to_thread(server.stop)


async def test_metrics_are_told_by_https_whoever_else_says_nothing(ours: Issuer) -> None:
    folder = ours.folder("verify", hosts=("127.0.0.1",))
    metrics = Metrics("verify")
    server = await asyncio.to_thread(MetricsServer, metrics.registry, "127.0.0.1", 0, folder)
    host, _, port = server.address.partition(":")
    _, silent = await asyncio.open_connection(host, int(port))
    base = f"https://{server.address}"
    try:
        async with httpx.AsyncClient(verify=trusting(ours), timeout=30) as http:
            assert "outrider_build_info" in (await http.get(f"{base}/metrics")).text
            ours.write(folder, "verify")
        async with httpx.AsyncClient(verify=trusting(ours), timeout=30) as http:
            # The first connection that comes may still be shown the old one.
            with pytest.raises(httpx.ConnectError, match="IP address mismatch"):
                for _ in range(2):
                    await http.get(f"{base}/metrics", headers={"Connection": "close"})
    finally:
        silent.close()
        await asyncio.to_thread(server.stop)
