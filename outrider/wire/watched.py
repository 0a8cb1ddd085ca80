"""What is told of a call besides its answer: its span in the caller's trace, and its error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from outrider.telemetry.metrics import Metrics
from outrider.telemetry.traces import TRACEPARENT, Span, is_tracing, start_span

Metadata = tuple[tuple[str, str], ...]


@contextmanager
def watched(
    name: str, context: grpc.aio.ServicerContext[Any, Any], metrics: Metrics
) -> Iterator[Span]:
    """The span of a call, to tell more of; counts the error that it ends with."""
    with start_span(name, traceparent_of(context), is_server=True) as span:
        try:
            yield span
        except Exception as error:
            metrics.note_error(error)
            raise


def traceparent_of(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The span that the caller names as the parent; empty where there is none or none is wanted."""
    if not is_tracing():
        return ""
    for key, value in context.invocation_metadata() or ():
        if key == TRACEPARENT and isinstance(value, str):
            return value
    return ""


def metadata_of(traceparent: str) -> Metadata | None:
    """What a call carries to name its parent."""
    return ((TRACEPARENT, traceparent),) if traceparent else None
