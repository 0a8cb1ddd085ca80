"""The draft service as a process: load the model, serve it, drain it."""

import asyncio
from collections.abc import Sequence

import grpc

from draft_service.drafter import Drafter
from draft_service.scheduler import Scheduler
from draft_service.servicer import DraftServicer
from draft_service.settings import DraftSettings
from outrider.host import host_facts
from outrider.identity import Role
from outrider.models.base import CausalModel
from outrider.models.footprint import Footprint
from outrider.models.registry import load_model
from outrider.models.room import check_room
from outrider.telemetry.logs import get_logger
from outrider.telemetry.waiting import told_while
from outrider.v1 import draft_pb2, draft_pb2_grpc
from outrider.wire.server import run_service

SERVICE_NAME = draft_pb2.DESCRIPTOR.services_by_name["DraftService"].full_name


class DraftServer:
    """The service that `outrider.wire.server.serve` runs."""

    names: Sequence[str] = (SERVICE_NAME,)

    def __init__(
        self, model: CausalModel, settings: DraftSettings, taken: Footprint | None = None
    ) -> None:
        self._scheduler = Scheduler(Drafter(model), settings)
        self.registry = self._scheduler.metrics.registry
        self._servicer = DraftServicer(
            self._scheduler,
            settings.max_sessions,
            (taken or Footprint()).load(
                settings.kv_tokens, settings.threads, settings.max_sessions
            ),
        )

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer."""
        draft_pb2_grpc.add_DraftServiceServicer_to_server(self._servicer, server)

    async def drain(self) -> None:
        """Returns when the open sessions have ended."""
        await self._scheduler.drain()

    async def stop(self) -> None:
        """Frees the model's thread."""
        await self._scheduler.stop()


async def build(settings: DraftSettings) -> DraftServer:
    """Loads the model; raises a domain error that says why where it cannot."""
    taken = await asyncio.to_thread(
        lambda: check_room(
            settings.model,
            settings.model_options(),
            host_facts(),
            is_skipped=settings.skip_memory_check,
        )
    )
    with told_while("loading_model", model=settings.model):
        model = load_model(settings.model, settings.model_options())
    get_logger().info(
        "model_loaded", model=model.info.model_name, context_tokens=model.info.context_tokens
    )
    return DraftServer(model, settings, taken)


def run(settings: DraftSettings) -> int:
    """Serves until told to stop; returns the exit status."""
    return run_service(Role.DRAFT, settings, lambda: build(settings))
