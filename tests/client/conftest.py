from collections.abc import AsyncIterator

import grpc
import pytest
from scripted_orchestrator import WHOLE_ANSWER, RunningOrchestrator, ScriptedOrchestrator

from outrider.v1.orchestrator_pb2_grpc import add_OrchestratorServiceServicer_to_server


@pytest.fixture
async def orchestrator() -> AsyncIterator[RunningOrchestrator]:
    """Runs on the event loop of the test; the sync client is used from a worker thread."""
    servicer = ScriptedOrchestrator()
    servicer.script = WHOLE_ANSWER
    server = grpc.aio.server()
    add_OrchestratorServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield RunningOrchestrator(servicer, server, f"127.0.0.1:{port}")
    await server.stop(None)
