"""Two CAs: ours, and one that nobody here trusts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tls_issuing import Issuer

from orchestrator import peers


@pytest.fixture(scope="package")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    """The CA of the deployment."""
    return Issuer(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="package")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    """Another CA, of the same name."""
    return Issuer(tmp_path_factory.mktemp("foreign"))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services that cannot be connected to are given up soon."""
    monkeypatch.setattr(peers, "PROBE_TIMEOUT_S", 1.0)


@pytest.fixture
def tls_folder(ours: Issuer, tmp_path: Path) -> Iterator[Path]:
    """A folder of a verify service that a test may spoil."""
    ours.write(tmp_path, "verify")
    yield tmp_path
