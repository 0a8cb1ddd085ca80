"""The span of an HTTP request for answers, below the caller's own where it names one."""

from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from outrider.telemetry.traces import TRACEPARENT, start_span

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TRACED_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})


class Traced:
    """Stands behind the guard: who has no key leaves no trace. `scope["state"]` tells the paths the
    `traceparent` of what they do.
    """

    def __init__(self, app: "ASGIApp") -> None:
        self._app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """ASGI."""
        if scope["type"] != "http" or scope["path"] not in TRACED_PATHS:
            await self._app(scope, receive, send)
            return
        state = scope["state"]
        with start_span(
            f"{scope['method']} {scope['path']}",
            Headers(scope=scope).get(TRACEPARENT, ""),
            is_server=True,
            request_id=state["request_id"],
        ) as span:
            state["traceparent"] = span.traceparent

            async def send_noted(message: "Message") -> None:
                if message["type"] == "http.response.start":
                    span.note(status=message["status"])
                await send(message)

            await self._app(scope, receive, send_noted)
