"""A gRPC server's life: bind, health, reflection, typed errors, drain, stop. Knows no model."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from outrider.errors import InternalError, OutriderError, UnavailableError
from outrider.settings import ServerSettings
from outrider.telemetry.logs import configure_logs, get_logger
from outrider.wire.channels import SERVER_OPTIONS
from outrider.wire.errors import abort
from outrider.wire.ports import require_free

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]


class Service(Protocol):
    """What a server runs: servicers to register, and how their sessions end."""

    names: Sequence[str]

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicers."""
        ...

    async def drain(self) -> None:
        """Refuses new sessions and returns when the open ones have ended."""
        ...

    async def stop(self) -> None:
        """Frees everything."""
        ...


class TypedErrors(grpc.aio.ServerInterceptor):
    """Turns domain errors of every method into statuses; anything else into INTERNAL with an error
    id.
    """

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "Handler | None":
        """Wraps the handler of the called method."""
        handler: Any = await continuation(handler_call_details)
        name: str = handler_call_details.method
        if handler is None or not name.startswith("/outrider."):
            return cast("Handler | None", handler)
        for kind in ("unary_unary", "unary_stream", "stream_stream"):
            method = getattr(handler, kind)
            if method is not None:
                wrap = _unary if kind == "unary_unary" else _stream
                return cast("Handler", handler._replace(**{kind: wrap(method, name)}))
        return cast("Handler", handler)


def _unary(method: Any, name: str) -> Any:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await method(request, context)
        except Exception as error:
            return await abort(context, _domain(error, name))

    return call


def _stream(method: Any, name: str) -> Any:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        try:
            async with contextlib.aclosing(method(request, context)) as responses:
                async for response in responses:
                    yield response
        except Exception as error:
            await abort(context, _domain(error, name))

    return call


def _domain(error: Exception, method: str) -> OutriderError:
    if isinstance(error, OutriderError):
        return error
    if isinstance(error, grpc.aio.AbortError):
        raise error
    error_id = uuid.uuid4().hex[:12]
    get_logger().error("unexpected_error", error_id=error_id, method=method, exc_info=error)
    return InternalError(f"internal error {error_id}; the service's log has the details")


def run_service(
    name: str, settings: ServerSettings, build: Callable[[], Awaitable[Service]]
) -> int:
    """Runs a service as this process and returns its exit status: 1 where it cannot serve."""
    configure_logs(name, settings.log_level, settings.log_format)
    if settings.exit_with_stdin:
        threading.Thread(target=_terminate_at_end_of_stdin, daemon=True).start()

    async def build_and_serve() -> None:
        # A model can take minutes to load, and the port is only bound once it can answer.
        require_free(settings.host, settings.port)
        await serve(await build(), settings)

    try:
        asyncio.run(build_and_serve())
    except OutriderError as error:
        get_logger().error("cannot_serve", problem=error.message)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


async def serve(service: Service, settings: ServerSettings) -> None:
    """Serves until SIGTERM or SIGINT, then drains and stops.

    Health goes NOT_SERVING first, open sessions get `grace_s` to end, a second signal ends them at
    once. Raises UnavailableError where the port cannot be bound.
    """
    server = grpc.aio.server(interceptors=[TypedErrors()], options=list(SERVER_OPTIONS))
    service.register(server)
    health = HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    names = (*service.names, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
    reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)
    port = _bind(server, settings)
    stopping = _stop_signals()
    await server.start()
    for name in ("", *service.names):
        await health.set(name, health_pb2.HealthCheckResponse.SERVING)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    get_logger().info("serving", address=f"{host}:{port}")
    if settings.ready_file is not None:
        temporary = settings.ready_file.with_suffix(f".{os.getpid()}")
        temporary.write_text(f"{host}:{port}")
        temporary.rename(settings.ready_file)
    await stopping.get()
    get_logger().info("draining", grace_s=settings.grace_s)
    await health.enter_graceful_shutdown()
    await _first_of(service.drain(), stopping.get(), timeout_s=settings.grace_s)
    await server.stop(grace=0)
    await service.stop()
    get_logger().info("stopped")


def _bind(server: grpc.aio.Server, settings: ServerSettings) -> int:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        return server.add_insecure_port(f"{host}:{settings.port}")
    except RuntimeError as error:
        raise UnavailableError(
            f"cannot listen on {host}:{settings.port}: the port is in use or not permitted; "
            "stop the other program or choose another --port (0 takes a free one)"
        ) from error


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
