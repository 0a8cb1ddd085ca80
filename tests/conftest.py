"""Fixtures for every room: services on the event loop of the test, services as processes."""

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import structlog
from support.local import Local
from support.processes import Processes

# The traceback that structlog shows otherwise, with all variables, takes seconds.
structlog.configure(
    processors=[
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback),
    ]
)

# Several processes share the cores: spinning thread pools would starve one another.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# No config file of whoever runs the suite.
os.environ["OUTRIDER_CONFIG"] = "none"
# A shell that starts the suite in the background lets it ignore Ctrl-C, and what it starts, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
async def local() -> AsyncIterator[Local]:
    """Real servicers and real gRPC in this process; everything ends with the test."""
    async with Local() as services:
        yield services


@pytest.fixture(scope="module")
def module_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """Services as processes that live as long as the test module."""
    with Processes(tmp_path_factory.mktemp("services")) as services:
        yield services


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Services as processes that live as long as the test."""
    with Processes(tmp_path) as services:
        yield services
