"""Traces for OpenTelemetry: what a request went through, in all services. Nothing else here knows
OpenTelemetry, which is imported where a collector is named and nowhere else.

A span never has a prompt, a text, a token or an error's message: names, counts and times only.
"""

import os
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from outrider.errors import InvalidArgumentError, UnavailableError
from outrider.telemetry.reasons import reason_of

if TYPE_CHECKING:
    from opentelemetry import trace

Attribute = str | int | float | bool

TRACEPARENT = "traceparent"
"""The name, in headers and metadata, of what names a span over services (W3C Trace Context)."""

FLUSH_S = 2.0
"""A process that ends waits no longer for a collector that does not take its last spans."""


class Span:
    """A piece of work. This one is in no trace, as all are where no collector is named."""

    traceparent = ""
    """Names it as the parent of others, here or in another service; empty: it is in no trace."""

    def note(self, **attributes: Attribute) -> None:
        """Tells more of it."""

    def fail(self, error: BaseException) -> None:
        """It went wrong."""

    def end(self) -> None:
        """It is over."""

    def __enter__(self) -> "Span":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Whoever gives up has not failed: a stream that was read to its end is closed like that.
        if isinstance(error, Exception):
            self.fail(error)
        self.end()


NO_SPAN = Span()


class _RecordedSpan(Span):
    def __init__(self, span: "trace.Span", traceparent: str) -> None:
        self._span = span
        self.traceparent = traceparent

    def note(self, **attributes: Attribute) -> None:
        self._span.set_attributes(_prefixed(attributes))

    def fail(self, error: BaseException) -> None:
        from opentelemetry.trace import StatusCode

        self._span.set_status(StatusCode.ERROR)
        self._span.set_attribute("error.type", reason_of(error))

    def end(self) -> None:
        self._span.end()


class _Tracer:
    """Batches of spans leave in a thread of their own; where too many wait, new ones are lost."""

    def __init__(self, service: str, endpoint: str, sample_ratio: float) -> None:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        name = os.environ.get("OTEL_SERVICE_NAME") or f"outrider-{service}"
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
            resource=Resource.create({"service.name": name}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
        self._tracer = self._provider.get_tracer("outrider")
        self._propagator = TraceContextTextMapPropagator()

    def start(
        self,
        name: str,
        parent: str,
        is_server: bool,
        started_ns: int | None,
        attributes: Mapping[str, Attribute],
    ) -> Span:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, set_span_in_context

        span = self._tracer.start_span(
            name,
            # Of an empty context, not the current one: a parent is named or there is none.
            self._propagator.extract({TRACEPARENT: parent}, Context()),
            SpanKind.SERVER if is_server else SpanKind.INTERNAL,
            _prefixed(attributes),
            start_time=started_ns,
        )
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(span, Context()))
        return _RecordedSpan(span, carrier[TRACEPARENT])

    def stop(self) -> None:
        flushing = threading.Thread(target=self._provider.shutdown, daemon=True)
        flushing.start()
        flushing.join(FLUSH_S)


_tracer: _Tracer | None = None


def configure_traces(service: str, endpoint: str, sample_ratio: float) -> None:
    """Sets the process up once; an empty `endpoint` means no traces. OTEL_* variables say the rest:
    headers, certificates, the size and delay of batches, attributes of the resource.

    Raises UnavailableError where OpenTelemetry is not installed, InvalidArgumentError where one of
    them makes no sense to it.
    """
    global _tracer
    if not endpoint:
        return
    try:
        _tracer = _Tracer(service, endpoint, sample_ratio)
    except ImportError as error:
        raise UnavailableError(
            f"traces are to go to {endpoint} and {error.name} is not installed; install the extra "
            "'traces', or leave --traces-endpoint out"
        ) from error
    except ValueError as error:
        raise InvalidArgumentError(
            f"traces cannot be set up ({error}); look at --traces-endpoint and the OTEL_* variables"
        ) from error


def is_tracing() -> bool:
    """Whether spans are recorded in this process."""
    return _tracer is not None


def start_span(
    name: str,
    parent: str = "",
    *,
    is_server: bool = False,
    started_ns: int | None = None,
    **attributes: Attribute,
) -> Span:
    """A span below the one that `parent` names (its traceparent), else the first of a new trace.

    `is_server` for work that another service asked for; `started_ns` since 1970 where it has begun
    before.
    """
    if _tracer is None:
        return NO_SPAN
    return _tracer.start(name, parent, is_server, started_ns, attributes)


def stop_traces() -> None:
    """Sends what is left, for a moment at most; no span is recorded from then on."""
    global _tracer
    tracer, _tracer = _tracer, None
    if tracer is not None:
        tracer.stop()


def _prefixed(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    return {f"outrider.{name}": value for name, value in attributes.items()}
