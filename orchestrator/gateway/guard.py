"""What every HTTP request passes before anything is read of it: its id, its key, its size."""

import asyncio
from collections.abc import Awaitable, Collection
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from orchestrator.gateway.failing import Answered, answered, refused
from orchestrator.gateway.keys import Keys
from outrider.errors import InternalError, UnavailableError
from outrider.request_ids import REQUEST_ID, request_id_of
from outrider.telemetry.logs import get_logger

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


BODY_S = 60.0
"""The longest silence in the middle of a body."""


def response_of(found: Answered) -> JSONResponse:
    """An error as a response."""
    return JSONResponse(
        found.failure.model_dump(), status_code=found.status, headers=dict(found.headers)
    )


class Guard:
    """Passes on requests with a key; `open_paths` need none.

    The request's id, the caller's own where it is a sane one, is in `scope["state"]` and in the
    response's headers.
    """

    def __init__(
        self, app: "ASGIApp", keys: Keys, max_body_bytes: int, open_paths: Collection[str]
    ) -> None:
        self._app = app
        self._keys = keys
        self._most = max_body_bytes
        self._open_paths = open_paths

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = request_id_of(headers.get(REQUEST_ID, ""))
        scope.setdefault("state", {})["request_id"] = request_id

        has_begun = False

        async def send_named(message: "Message") -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        problem = self._problem(scope["path"], headers)
        if problem is not None:
            await response_of(problem)(scope, receive, send_named)
            return
        try:
            await self._app(scope, self._counting(receive), send_named)
        except asyncio.CancelledError:
            # Only the end of the service cancels a request.
            if not has_begun:
                ending = UnavailableError("the orchestrator is shutting down; try another one")
                await response_of(answered(ending))(scope, receive, send_named)
        except Exception as error:
            get_logger().error("unexpected_error", request_id=request_id, exc_info=error)
            if not has_begun:
                bug = InternalError(f"the endpoint failed; see its log, request {request_id}")
                await response_of(answered(bug))(scope, receive, send_named)

    def _problem(self, path: str, headers: Headers) -> Answered | None:
        if path not in self._open_paths and not self._keys.admit(_key(headers)):
            return refused(
                401,
                "the API key is missing or is not one of this server's; send it as "
                "'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )
        length = headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length) > self._most:
            return refused(413, self._too_large(length), code="request_too_large")
        return None

    def _counting(self, receive: "Receive") -> "Receive":
        """The body as it comes, up to the limit; behind it, whatever comes."""
        size, is_whole = 0, False

        async def receive_counted() -> "Message":
            nonlocal size, is_whole
            message = await (receive() if is_whole else _soon(receive()))
            is_whole = not message.get("more_body", False)
            size += len(message.get("body", b""))
            if size > self._most:
                raise HTTPException(413, self._too_large(f"more than {self._most}"))
            return message

        return receive_counted

    def _too_large(self, size: str) -> str:
        return f"the body has {size} bytes; send at most {self._most}"


async def _soon(receiving: Awaitable["Message"]) -> "Message":
    """A part of a body; whoever sends none for long holds a connection that others want."""
    message = asyncio.ensure_future(receiving)
    try:
        await asyncio.wait({message}, timeout=BODY_S)
        if not message.done():
            raise HTTPException(408, f"nothing more of the body came within {BODY_S:g} s")
        return message.result()
    finally:
        message.cancel()


def _key(headers: Headers) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
