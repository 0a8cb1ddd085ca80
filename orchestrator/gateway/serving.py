"""The HTTP endpoint's life: bind, serve, end; in the event loop of the orchestrator.

HTTPS shows a certificate and asks for none: whoever asks over HTTP has a key.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from orchestrator.front import Front
from orchestrator.gateway.app import make_app
from orchestrator.gateway.endpoints import Desk
from orchestrator.gateway.settings import GatewaySettings
from outrider.errors import UnavailableError
from outrider.identity import files_of, require_pair
from outrider.renewal import renewing
from outrider.telemetry.logs import get_logger

BACKLOG = 512


async def open_gateway(front: Front, settings: GatewaySettings) -> "Gateway":
    """An HTTP endpoint that serves; raises what keeps it from that."""
    desk = Desk(front, settings.served_model_name, settings.default_max_tokens)
    gateway = Gateway(make_app(desk, settings), settings)
    await gateway.start()
    return gateway


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The orchestrator has its own way to end."""
        yield


class Gateway:
    """One HTTP server."""

    def __init__(self, app: FastAPI, settings: GatewaySettings) -> None:
        """Binds; raises a domain error where that cannot be, or there is no certificate to show."""
        self._settings = settings
        files = files_of(settings.https) if settings.https else None
        if files is not None:
            require_pair(files)
        self._socket = _bind(settings.host, settings.http_port)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
            ssl_certfile=None if files is None else files.certificate,
            ssl_keyfile=None if files is None else files.key,
        )
        config.load()
        if files is not None and config.ssl is not None:
            config.ssl.sni_callback = renewing(config.ssl, files, "https")
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Where it serves."""
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def start(self) -> None:
        """Serves from now on."""
        self._task = asyncio.create_task(self._server.serve([self._socket]))
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise UnavailableError("the HTTP server ended as it began")
            await asyncio.sleep(0.01)
        get_logger().info("serving_http", address=self.address, tls=bool(self._settings.https))
        if self._settings.http_ready_file is not None:
            temporary = self._settings.http_ready_file.with_suffix(f".{os.getpid()}")
            temporary.write_text(self.address)
            temporary.rename(self._settings.http_ready_file)

    async def stop(self) -> None:
        """Ends what is still open, and closes."""
        self._server.should_exit = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._socket.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise UnavailableError(
            f"cannot listen on {host}:{port} for HTTP ({error.strerror}); stop the other program, "
            "choose another --http-port (0 takes a free one), or leave HTTP out (--no-http)"
        ) from error
    return bound
