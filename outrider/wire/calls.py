"""What every call of a server has in common: who may call, typed errors, a first message."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc

from outrider.errors import DeadlineError, InternalError, OutriderError
from outrider.telemetry.logs import get_logger
from outrider.wire.errors import ERROR_ID_KEY, abort

if TYPE_CHECKING:
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]
    Admit = Callable[[Context, str], None]

FIRST_MESSAGE_S = 10.0

T = TypeVar("T")


class TypedErrors(grpc.aio.ServerInterceptor):
    """Turns domain errors of every method into statuses; anything else into INTERNAL with an error
    id. `admit` raises one where the caller of a method may not call it.
    """

    def __init__(self, admit: "Admit | None" = None) -> None:
        self._admit = admit or _anyone

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
        for kind in ("unary_unary", "stream_unary", "unary_stream", "stream_stream"):
            method = getattr(handler, kind)
            if method is not None:
                wrap = _unary if kind.endswith("unary") else _stream
                return cast("Handler", handler._replace(**{kind: wrap(method, name, self._admit)}))
        return cast("Handler", handler)


def _anyone(context: "Context", method: str) -> None:
    pass


def _unary(method: Any, name: str, admit: "Admit") -> Any:
    async def call(request: Any, context: "Context") -> Any:
        try:
            admit(context, name)
            return await method(request, context)
        except Exception as error:
            return await abort(context, _domain(error, name))

    return call


def _stream(method: Any, name: str, admit: "Admit") -> Any:
    async def call(request: Any, context: "Context") -> AsyncIterator[Any]:
        try:
            admit(context, name)
            async with contextlib.aclosing(method(request, context)) as responses:
                async for response in responses:
                    yield response
        except Exception as error:
            await abort(context, _domain(error, name))

    return call


def _domain(error: Exception, method: str) -> OutriderError:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if isinstance(error, OutriderError) and not isinstance(error, InternalError):
        return error
    return internal_error(error, method)


def internal_error(error: Exception, method: str) -> InternalError:
    """What the caller is told of a bug: an id under which the log, written here, explains it."""
    if isinstance(error, InternalError) and ERROR_ID_KEY in error.metadata:
        return error
    error_id = uuid.uuid4().hex[:12]
    request_id = error.request_id if isinstance(error, InternalError) else ""
    get_logger().error(
        "unexpected_error",
        error_id=error_id,
        method=method,
        request_id=request_id,
        exc_info=error,
    )
    what = error.message if isinstance(error, InternalError) else "internal error"
    return InternalError(
        f"{what} (error {error_id}; the service's log has the details)",
        request_id=request_id,
        metadata={ERROR_ID_KEY: error_id},
    )


async def first_message(requests: AsyncIterator[T]) -> T | None:
    """The first message of a stream; None where the caller ends it without one.

    Raises DeadlineError for a caller that opens a stream and says nothing: it holds a place.
    """
    first = asyncio.ensure_future(anext(aiter(requests), None))
    try:
        await asyncio.wait({first}, timeout=FIRST_MESSAGE_S)
        if not first.done():
            raise DeadlineError(f"nothing was sent within {FIRST_MESSAGE_S:.0f} s; send open first")
        return first.result()
    finally:
        first.cancel()
