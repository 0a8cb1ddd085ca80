"""Metrics for Prometheus: how a service names, lists and serves them. Knows nothing of what they
count.
"""

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from outrider.errors import UnavailableError
from outrider.identity import files_of
from outrider.renewal import renewing
from outrider.telemetry.reasons import all_reasons, reason_of
from outrider.version import __version__

SILENCE_S = 10.0

PASS_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


@dataclass(frozen=True, slots=True)
class Described:
    """A metric as the reference tells it, by the name that is asked for in PromQL; a histogram's
    has `_bucket`, `_sum` or `_count` behind it.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


class Metrics:
    """The metrics of one service, and a list of them. What several services have is told apart by
    its label `service`; no label names a request, a session or anything that a caller chooses.
    """

    def __init__(self, service: str) -> None:
        self.service = service
        self.registry = CollectorRegistry()
        self.described: list[Described] = []
        build = self.gauge("build_info", "The version that runs", "service", "version")
        build.labels(service=service, version=__version__).set(1)
        self._errors = self.counter(
            "errors", "Requests and sessions that ended with an error", "service", "reason"
        )
        for reason in all_reasons():
            # From the start: a rate needs the zero before the first error.
            self._errors.labels(service=service, reason=reason)

    def note_error(self, error: BaseException) -> None:
        """After a request or a session that ended with it."""
        self._errors.labels(service=self.service, reason=reason_of(error)).inc()

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """A counter; `_total` is put behind its name."""
        self._describe(f"{name}_total", "counter", text, labels)
        return Counter(f"outrider_{name}", text, labels, registry=self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """A gauge."""
        self._describe(name, "gauge", text, labels)
        return Gauge(f"outrider_{name}", text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        """A histogram."""
        self._describe(name, "histogram", text, ())
        return Histogram(f"outrider_{name}", text, registry=self.registry, buckets=buckets)

    def _describe(self, name: str, kind: str, text: str, labels: tuple[str, ...]) -> None:
        self.described.append(Described(f"outrider_{name}", kind, labels, text))


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How full a service is: its sessions, how many of them or of those to come wait for the model,
    and tokens of KV by what they are: used, promised, or the limit.
    """

    sessions: int
    waiting: int
    kv_tokens: Mapping[str, int]


class SessionMetrics(Metrics):
    """What both services have that hold sessions of a model."""

    def __init__(self, service: str, look: Callable[[], Occupancy]) -> None:
        """`look` is asked in the thread that serves the metrics, whenever they are."""
        super().__init__(service)
        self._opened = self.counter("sessions", "Sessions that were opened", "service").labels(
            service=service
        )
        open_now = self.gauge("sessions_open", "Sessions that are open", "service")
        open_now.labels(service=service).set_function(lambda: look().sessions)
        queue = self.gauge(
            "queue_depth",
            "Sessions that wait for the model: being opened, or ready and not in its last pass",
            "service",
        )
        queue.labels(service=service).set_function(lambda: look().waiting)
        kv = self.gauge(
            "kv_tokens",
            "Tokens of KV cache: used by open sessions (shared ones by each), promised to them "
            "(verify only), and the limit",
            "service",
            "state",
        )
        for state in look().kv_tokens:
            kv.labels(service=service, state=state).set_function(_reading(look, state))

    def note_opened(self) -> None:
        """After a session was opened."""
        self._opened.inc()


class MetricsServer:
    """Serves a registry over HTTP, at any path, in a thread of its own."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int, tls: str = "") -> None:
        """With the certificate in the folder `tls` over HTTPS, for whoever asks. Raises
        UnavailableError where the port cannot be listened on.
        """
        files = files_of(tls) if tls else None
        try:
            self._server, self._thread = start_http_server(
                port,
                host,
                registry,
                certfile=None if files is None else str(files.certificate),
                keyfile=None if files is None else str(files.key),
            )
        except OSError as error:
            raise UnavailableError(
                f"cannot listen on {host}:{port} for metrics ({error.strerror}); stop the other "
                "program or choose another --metrics-port (0 takes a free one)"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{shown}:{self._server.server_port}"
        """Where it serves."""
        # Each connection has a thread: one that says nothing keeps it no longer than this.
        handler: Any = self._server.RequestHandlerClass
        self._server.RequestHandlerClass = type("Hasty", (handler,), {"timeout": SILENCE_S})
        listening = self._server.socket
        if files is not None and isinstance(listening, ssl.SSLSocket):
            # Left to a connection's own thread: whoever says nothing keeps only that one waiting.
            listening.do_handshake_on_connect = False  # type: ignore[attr-defined]
            listening.context.sni_callback = renewing(listening.context, files, "metrics")

    def stop(self) -> None:
        """Returns when nobody is served any more; takes up to half a second."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _reading(look: Callable[[], Occupancy], state: str) -> Callable[[], float]:
    return lambda: look().kv_tokens[state]
