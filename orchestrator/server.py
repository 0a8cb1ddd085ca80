"""The orchestrator as a process: bring the engines up, serve them, drain them."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import grpc

from orchestrator.engines import Engines, make_engines
from orchestrator.requests import ClusterView, Event, GenerationRequest
from orchestrator.servicer import OrchestratorServicer
from orchestrator.settings import OrchestratorSettings
from outrider.diagnosis import Diagnosis
from outrider.errors import UnavailableError
from outrider.types import ModelInfo
from outrider.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from outrider.wire.server import run_service

SERVICE_NAME = orchestrator_pb2.DESCRIPTOR.services_by_name["OrchestratorService"].full_name


class Draining:
    """Engines that refuse new requests once they are told to drain."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines
        self._running = 0
        self._is_draining = False
        self._idle = asyncio.Event()

    async def model_info(self) -> ModelInfo:
        """The target's facts."""
        return await self._engines.model_info()

    async def cluster(self) -> ClusterView:
        """The verifier and the drafts."""
        return await self._engines.cluster()

    async def diagnose(self, *, with_bandwidth: bool) -> Diagnosis:
        """What every service runs on, and the lines to them, measured now."""
        return await self._engines.diagnose(with_bandwidth=with_bandwidth)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        """Started, then Tokens for each verdict, then Finished."""
        if self._is_draining:
            raise UnavailableError("the orchestrator is shutting down; try another one")
        self._running += 1
        try:
            async for event in self._engines.generate(request):
                yield event
        finally:
            self._running -= 1
            self._idle.set()

    async def start(self) -> None:
        """Brings the engines up."""
        await self._engines.start()

    async def drain(self) -> None:
        """Returns when the running requests have ended."""
        self._is_draining = True
        while self._running:
            self._idle.clear()
            await self._idle.wait()

    async def stop(self) -> None:
        """Takes the engines down."""
        await self._engines.stop()


class OrchestratorServer:
    """The service that `outrider.wire.server.serve` runs."""

    names: Sequence[str] = (SERVICE_NAME,)

    def __init__(self, engines: Engines) -> None:
        self._engines = Draining(engines)
        self._servicer = OrchestratorServicer(self._engines)

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer."""
        orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(self._servicer, server)

    async def drain(self) -> None:
        """Returns when the running requests have ended."""
        await self._engines.drain()

    async def stop(self) -> None:
        """Takes the engines down."""
        await self._engines.stop()


async def build(settings: OrchestratorSettings) -> OrchestratorServer:
    """Brings the engines up; raises a domain error that says why where it cannot."""
    engines = make_engines(settings)
    await engines.start()
    return OrchestratorServer(engines)


def run(settings: OrchestratorSettings) -> int:
    """Serves until told to stop; returns the exit status."""
    return run_service("orchestrator", settings, lambda: build(settings))
