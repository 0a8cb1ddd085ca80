"""A gRPC server's life: TLS, health, reflection, typed errors, drain, stop. Knows no model."""

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from outrider.errors import OutriderError, UnavailableError
from outrider.identity import Role
from outrider.settings import ServerSettings
from outrider.telemetry.logs import configure_logs, get_logger
from outrider.telemetry.metrics import MetricsServer
from outrider.telemetry.traces import configure_traces, stop_traces
from outrider.wire.calls import TypedErrors
from outrider.wire.channels import SERVER_OPTIONS
from outrider.wire.gatekeeper import Gatekeeper
from outrider.wire.ports import require_free

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]


MAX_CALLS = 8192
"""Calls of one server at once; sessions have their own, lower limits."""


class Service(Protocol):
    """What a server runs: servicers to register, and how their sessions end."""

    names: Sequence[str]

    @property
    def registry(self) -> CollectorRegistry:
        """What is served where there is a `metrics_port`."""
        ...

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicers."""
        ...

    async def drain(self) -> None:
        """Refuses new sessions and returns when the open ones have ended."""
        ...

    async def stop(self) -> None:
        """Frees everything."""
        ...


def run_service(
    role: Role, settings: ServerSettings, build: Callable[[], Awaitable[Service]]
) -> int:
    """Runs a service as this process and returns its exit status: 1 where it cannot serve."""
    configure_logs(role.value, settings.log_level, settings.log_format)
    if settings.exit_with_stdin:
        threading.Thread(target=_terminate_at_end_of_stdin, daemon=True).start()

    async def build_and_serve() -> None:
        gatekeeper = Gatekeeper(settings.tls, role) if settings.tls else None
        # A model can take minutes to load, and the port is only bound once it can answer.
        require_free(settings.host, settings.port)
        if settings.metrics_port is not None:
            require_free(settings.host, settings.metrics_port, "--metrics-port")
        service = await build()
        # What is there by now stays: the collector need not look at a model's many objects again
        # and again, for tenths of a second, while passes wait.
        gc.collect()
        gc.freeze()
        await serve(service, settings, gatekeeper)

    # asyncio would turn the first Ctrl-C into a cancellation, which a loading model does not see.
    signal.signal(signal.SIGINT, _interrupt)
    try:
        configure_traces(role.value, settings.traces_endpoint, settings.traces_sample_ratio)
        asyncio.run(build_and_serve())
    except OutriderError as error:
        get_logger().error("cannot_serve", problem=error.message)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        stop_traces()
    return 0


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


async def serve(
    service: Service, settings: ServerSettings, gatekeeper: Gatekeeper | None = None
) -> None:
    """Serves until SIGTERM or SIGINT, then drains and stops; without a gatekeeper in plain text.

    Health goes NOT_SERVING first, open sessions get `grace_s` to end, a second signal ends them at
    once. Raises UnavailableError where the port cannot be bound.
    """
    server = make_server(gatekeeper)
    service.register(server)
    health = HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    names = (*service.names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
    reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)
    port = bind(server, settings.host, settings.port, gatekeeper)
    metrics = await _serve_metrics(service.registry, settings)
    stopping = _stop_signals()
    watching = asyncio.create_task(gatekeeper.watch()) if gatekeeper is not None else None
    await server.start()
    for name in ("", *service.names):
        await health.set(name, health_pb2.HealthCheckResponse.SERVING)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    get_logger().info("serving", address=f"{host}:{port}", tls=gatekeeper is not None)
    if settings.ready_file is not None:
        temporary = settings.ready_file.with_suffix(f".{os.getpid()}")
        temporary.write_text(f"{host}:{port}")
        temporary.rename(settings.ready_file)
    await stopping.get()
    get_logger().info("draining", grace_s=settings.grace_s)
    await health.enter_graceful_shutdown()
    await _first_of(service.drain(), stopping.get(), timeout_s=settings.grace_s)
    if watching is not None:
        watching.cancel()
    await server.stop(grace=0)
    await service.stop()
    if metrics is not None:
        await asyncio.to_thread(metrics.stop)
    get_logger().info("stopped")


def make_server(gatekeeper: Gatekeeper | None = None) -> grpc.aio.Server:
    """A server without servicers and ports yet."""
    return grpc.aio.server(
        interceptors=[TypedErrors(None if gatekeeper is None else gatekeeper.admit)],
        options=list(SERVER_OPTIONS),
        maximum_concurrent_rpcs=MAX_CALLS,
    )


def bind(
    server: grpc.aio.Server, host: str, port: int, gatekeeper: Gatekeeper | None = None
) -> int:
    """Opens a port, 0 for any free one, and returns its number; raises UnavailableError where it
    cannot be had.
    """
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if gatekeeper is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, gatekeeper.credentials())
    except RuntimeError as error:
        raise UnavailableError(
            f"cannot listen on {address}: the port is in use or not permitted; "
            "stop the other program or choose another --port (0 takes a free one)"
        ) from error


async def _serve_metrics(
    registry: CollectorRegistry, settings: ServerSettings
) -> MetricsServer | None:
    if settings.metrics_port is None:
        return None
    # In a thread: Python looks up the name of the host that it serves.
    metrics = await asyncio.to_thread(
        MetricsServer, registry, settings.host, settings.metrics_port, settings.tls
    )
    get_logger().info("serving_metrics", address=metrics.address)
    return metrics


def _stop_signals() -> "asyncio.Queue[str]":
    """A queue that gets one entry for each reason to stop."""
    loop = asyncio.get_running_loop()
    reasons: asyncio.Queue[str] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, reasons.put_nowait, number.name)
    return reasons


def _terminate_at_end_of_stdin() -> None:
    """In a thread from the start, because a parent can die while its child still loads a model."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


async def _first_of(*waits: Awaitable[object], timeout_s: float) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
