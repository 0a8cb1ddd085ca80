"""The orchestrator as a process: bring the engines up, serve them, drain them."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import grpc
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from orchestrator.engines import Engines, make_engines
from orchestrator.front import CLUSTER_S, Front
from orchestrator.metrics import FrontMetrics
from orchestrator.servicer import OrchestratorServicer
from orchestrator.settings import OrchestratorSettings
from outrider.identity import Role
from outrider.telemetry.logs import get_logger
from outrider.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from outrider.wire.server import run_service

if TYPE_CHECKING:
    from orchestrator.gateway.serving import Gateway

SERVICE_NAME = orchestrator_pb2.DESCRIPTOR.services_by_name["OrchestratorService"].full_name

LOOK_S = 2 * CLUSTER_S
"""An event loop that is ending answers nobody."""


class OrchestratorServer:
    """The service that `outrider.wire.server.serve` runs."""

    names: Sequence[str] = (SERVICE_NAME,)

    def __init__(self, engines: Engines, *, has_vllm_names: bool = False) -> None:
        self.front = Front(engines, FrontMetrics(has_vllm_names=has_vllm_names))
        self.gateway: Gateway | None = None
        """The HTTP endpoint to the same engines, if there is one."""
        self._servicer = OrchestratorServicer(self.front)
        self.registry = CollectorRegistry()
        self.registry.register(_AskedNow(self.front, asyncio.get_running_loop()))

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer."""
        orchestrator_pb2_grpc.add_OrchestratorServiceServicer_to_server(self._servicer, server)

    async def drain(self) -> None:
        """Returns when the running requests have ended."""
        await self.front.drain()

    async def stop(self) -> None:
        """Takes the endpoint and the engines down."""
        if self.gateway is not None:
            await self.gateway.stop()
        await self.front.stop()


class _AskedNow(Collector):
    """For the thread that serves metrics: the services are asked in the loop before it tells."""

    def __init__(self, front: Front, loop: asyncio.AbstractEventLoop) -> None:
        self._front = front
        self._loop = loop

    def collect(self) -> Iterable[Metric]:
        """As Prometheus' library asks for it."""
        asyncio.run_coroutine_threadsafe(self._front.look(), self._loop).result(LOOK_S)
        return self._front.metrics.registry.collect()

    def describe(self) -> Iterable[Metric]:
        """Nothing to compare: it stands alone."""
        return ()


async def build(settings: OrchestratorSettings) -> OrchestratorServer:
    """Brings the engines up; raises a domain error that says why where it cannot."""
    _tell_lowered(settings)
    engines = make_engines(settings)
    await engines.start()
    server = OrchestratorServer(engines, has_vllm_names=settings.vllm_metric_names)
    if settings.http:
        # FastAPI is not imported where it serves nobody.
        from orchestrator.gateway.serving import open_gateway

        try:
            server.gateway = await open_gateway(server.front, settings)
        except BaseException:
            await server.stop()
            raise
    return server


def _tell_lowered(settings: OrchestratorSettings) -> None:
    """So deep a wait comes true only for a request that asks for longer drafts than the default."""
    most = settings.num_speculative_tokens
    if settings.wait_nodes is not None and settings.wait_nodes > most:
        get_logger().warning(
            "wait_nodes_lowered",
            wait_nodes=settings.wait_nodes,
            to=most,
            where="requests that choose no num_speculative_tokens of their own",
        )


def run(settings: OrchestratorSettings) -> int:
    """Serves until told to stop; returns the exit status."""
    return run_service(Role.ORCHESTRATOR, settings, lambda: build(settings))
