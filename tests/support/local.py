"""The real services on the event loop of the test: real gRPC, no process to start."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from draft_service.server import DraftServer
from draft_service.settings import DraftSettings
from orchestrator.engine import Engine
from orchestrator.server import OrchestratorServer, build
from orchestrator.settings import OrchestratorSettings
from outrider.client import AsyncClient
from outrider.identity import Role
from outrider.models.base import CausalModel
from outrider.models.registry import ModelOptions, load_model
from outrider.v1 import draft_pb2_grpc, verify_pb2_grpc
from outrider.wire.channels import SERVER_OPTIONS
from outrider.wire.gatekeeper import Gatekeeper
from outrider.wire.server import bind, make_server
from support.models import Watched
from verify_service.server import VerifyServer
from verify_service.settings import VerifySettings

TARGET = "scripted:vocab=64"


@dataclass(frozen=True)
class Running:
    """A service that serves; `model` counts what it is asked."""

    address: str
    service: Any
    server: grpc.aio.Server
    model: Watched

    @property
    def scheduler(self) -> Any:
        """Its sessions."""
        return self.service._scheduler


class Local:
    """Starts services in this process; all of them end when it is left."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> "Local":
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._stack.aclose()

    async def verify(self, model: str | CausalModel = TARGET, **settings: Any) -> Running:
        """A verify service."""
        chosen = VerifySettings(port=0, **settings)
        watched = Watched(_loaded(model, chosen.model_options()))
        return await self._serve(VerifyServer(watched, chosen), watched, Role.VERIFY, chosen.tls)

    async def draft(
        self, model: str | CausalModel = TARGET, *, port: int = 0, **settings: Any
    ) -> Running:
        """A draft service; `port` 0: any that is free."""
        chosen = DraftSettings(port=0, **settings)
        watched = Watched(_loaded(model, chosen.model_options()))
        return await self._serve(
            DraftServer(watched, chosen), watched, Role.DRAFT, chosen.tls, port
        )

    async def fake_draft(self, servicer: draft_pb2_grpc.DraftServiceServicer) -> str:
        """The address of a draft that does whatever `servicer` does."""
        server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        draft_pb2_grpc.add_DraftServiceServicer_to_server(servicer, server)
        return await self._listen(server)

    async def fake_verify(self, servicer: verify_pb2_grpc.VerifyServiceServicer) -> str:
        """The address of a verifier that does whatever `servicer` does."""
        server = grpc.aio.server(options=list(SERVER_OPTIONS))
        verify_pb2_grpc.add_VerifyServiceServicer_to_server(servicer, server)
        return await self._listen(server)

    async def orchestrator(
        self,
        verify: Running | str,
        drafts: Mapping[str, Running | str] | None = None,
        *,
        client_tls: str = "",
        **settings: Any,
    ) -> AsyncClient:
        """A client of an orchestrator over these services, which tries nothing again; every request
        has all of the drafts.
        """
        names = [f"{name}={_address(draft)}" for name, draft in (drafts or {}).items()]
        if names:
            settings.setdefault("drafts_per_session", len(names))
        chosen = OrchestratorSettings(
            port=0, ray="local", verify=_address(verify), draft=names, **settings
        )
        engine = Engine(chosen)
        await engine.start()
        service = OrchestratorServer(engine)
        gatekeeper = _gatekeeper(chosen.tls, Role.ORCHESTRATOR)
        server = make_server(gatekeeper)
        service.register(server)
        self._stack.push_async_callback(service.stop)
        address = await self._listen(server, gatekeeper=gatekeeper)
        client = AsyncClient(address, timeout_s=60, retries=0, tls=client_tls)
        self._stack.push_async_callback(client.close)
        return client

    async def gateway(
        self,
        verify: Running | str,
        drafts: Mapping[str, Running | str] | None = None,
        **settings: Any,
    ) -> str:
        """The base address of an HTTP endpoint; every request has all of the drafts."""
        names = [f"{name}={_address(draft)}" for name, draft in (drafts or {}).items()]
        if names:
            settings.setdefault("drafts_per_session", len(names))
        chosen = OrchestratorSettings(
            port=0, http_port=0, ray="local", verify=_address(verify), draft=names, **settings
        )
        service = await build(chosen)
        self._stack.push_async_callback(service.stop)
        assert service.gateway is not None
        return f"{'https' if chosen.https else 'http'}://{service.gateway.address}"

    async def channel(self, address: str) -> grpc.aio.Channel:
        """A bare channel, for what no client of ours would send."""
        channel = grpc.aio.insecure_channel(address)
        self._stack.push_async_callback(channel.close)
        return channel

    async def _serve(
        self, service: Any, model: Watched, role: Role, tls: str, port: int = 0
    ) -> Running:
        gatekeeper = _gatekeeper(tls, role)
        server = make_server(gatekeeper)
        service.register(server)
        self._stack.push_async_callback(service.stop)
        address = await self._listen(server, port, gatekeeper)
        return Running(address, service, server, model)

    async def _listen(
        self, server: grpc.aio.Server, port: int = 0, gatekeeper: Gatekeeper | None = None
    ) -> str:
        port = bind(server, "127.0.0.1", port, gatekeeper)
        await server.start()
        self._stack.push_async_callback(server.stop, None)
        return f"127.0.0.1:{port}"


def _gatekeeper(tls: str, role: Role) -> Gatekeeper | None:
    return Gatekeeper(tls, role) if tls else None


def _address(service: Running | str) -> str:
    return service if isinstance(service, str) else service.address


def _loaded(model: str | CausalModel, options: ModelOptions) -> CausalModel:
    return load_model(model, options) if isinstance(model, str) else model
