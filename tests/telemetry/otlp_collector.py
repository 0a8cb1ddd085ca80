"""A collector of traces that keeps what it is sent: OTLP over gRPC, in this process."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True)
class Told:
    """A span as it was exported; `parent` is empty where it is the first of its trace."""

    service: str
    trace: str
    span: str
    parent: str
    name: str
    attributes: dict[str, Any]
    has_failed: bool
    message: str
    started_ns: int
    ended_ns: int


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Serves while it is entered."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: list[Told] = []
        self._server = grpc.server(ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self._server)
        self.endpoint = f"http://127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self) -> "Collector":
        self._server.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.stop(None).wait()

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC names its methods
        found = []
        for of_resource in request.resource_spans:
            resource = {a.key: a.value.string_value for a in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                found += [_told(resource["service.name"], span) for span in of_scope.spans]
        with self._lock:
            self._told += found
        return trace_service_pb2.ExportTraceServiceResponse()

    def trace(self, trace: str) -> list[Told]:
        """The spans of a trace so far."""
        with self._lock:
            return [told for told in self._told if told.trace == trace]

    @property
    def all(self) -> list[Told]:
        """All spans so far."""
        with self._lock:
            return list(self._told)


def _told(service: str, span: Any) -> Told:
    return Told(
        service,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes},
        span.status.code == span.status.STATUS_CODE_ERROR,
        span.status.message,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )
