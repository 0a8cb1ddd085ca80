"""The verify service as a process: load the model, serve it, drain it."""

import asyncio
from collections.abc import Sequence

import grpc

from outrider.errors import InvalidArgumentError
from outrider.host import host_facts
from outrider.identity import Role
from outrider.models.base import CausalModel
from outrider.models.footprint import Footprint
from outrider.models.registry import load_model
from outrider.models.room import check_room
from outrider.telemetry.logs import get_logger
from outrider.telemetry.waiting import told_while
from outrider.v1 import verify_pb2, verify_pb2_grpc
from outrider.wire.server import run_service
from verify_service.scheduler import Scheduler
from verify_service.servicer import VerifyServicer
from verify_service.settings import VerifySettings
from verify_service.verifier import Verifier

SERVICE_NAME = verify_pb2.DESCRIPTOR.services_by_name["VerifyService"].full_name


class VerifyServer:
    """The service that `outrider.wire.server.serve` runs."""

    names: Sequence[str] = (SERVICE_NAME,)

    def __init__(
        self, model: CausalModel, settings: VerifySettings, taken: Footprint | None = None
    ) -> None:
        self._scheduler = Scheduler(Verifier(model), settings)
        self.registry = self._scheduler.metrics.registry
        self._servicer = VerifyServicer(
            self._scheduler,
            settings.max_sessions,
            (taken or Footprint()).load(
                settings.kv_tokens, settings.threads, settings.max_sessions
            ),
        )

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer."""
        verify_pb2_grpc.add_VerifyServiceServicer_to_server(self._servicer, server)

    async def drain(self) -> None:
        """Returns when the open sessions have ended."""
        await self._scheduler.drain()

    async def stop(self) -> None:
        """Frees the model's thread."""
        await self._scheduler.stop()


async def build(settings: VerifySettings) -> VerifyServer:
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
    if model.info.vocab_size == 0:
        raise InvalidArgumentError(
            f"{settings.model} proposes tokens but has no distribution over a vocabulary; "
            "it can draft, not verify"
        )
    get_logger().info(
        "model_loaded", model=model.info.model_name, context_tokens=model.info.context_tokens
    )
    return VerifyServer(model, settings, taken)


def run(settings: VerifySettings) -> int:
    """Serves until told to stop; returns the exit status."""
    return run_service(Role.VERIFY, settings, lambda: build(settings))
