"""The engines as everyone who serves them sees them: counted, and closed when the service ends.

Knows no gRPC and no HTTP.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

from orchestrator.engines import Engines
from orchestrator.metrics import FrontMetrics
from orchestrator.requests import ClusterView, Event, Finished, GenerationRequest, Prompt
from orchestrator.traffic import Traffic
from outrider.diagnosis import Diagnosis
from outrider.errors import OutriderError, UnavailableError
from outrider.telemetry.logs import get_logger
from outrider.telemetry.reasons import reason_of
from outrider.telemetry.traces import Attribute, start_span
from outrider.types import ModelInfo
from outrider.vocabulary import Vocabulary

Generate = Callable[[GenerationRequest], AsyncIterator[Event]]

CLUSTER_S = 5.0
"""Longer nobody who asks for metrics waits for services that do not answer."""


class Front:
    """Engines that refuse new requests once they are told to drain."""

    def __init__(self, engines: Engines, metrics: FrontMetrics) -> None:
        self.metrics = metrics
        self.traffic = Traffic()
        self._engines = engines
        self._admitted = 0
        self._idle = asyncio.Event()
        self._drain = asyncio.Event()

    @property
    def is_draining(self) -> bool:
        """Whether it was told to."""
        return self._drain.is_set()

    @property
    def running(self) -> int:
        """Requests that are being answered."""
        return self._admitted

    async def model_info(self) -> ModelInfo:
        """The target's facts."""
        return await self._engines.model_info()

    async def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """The token ids of a prompt."""
        return await self._engines.tokenize(prompt)

    async def vocabulary(self) -> Vocabulary:
        """The bytes of every token of the target."""
        return await self._engines.vocabulary()

    async def cluster(self) -> ClusterView:
        """The verifier and the drafts."""
        return await self._engines.cluster()

    async def diagnose(self, *, with_bandwidth: bool) -> Diagnosis:
        """What every service runs on, and the lines to them, measured now."""
        return await self._engines.diagnose(with_bandwidth=with_bandwidth)

    @contextlib.contextmanager
    def admission(self) -> Iterator[Generate]:
        """What one request begins its generations with; those that it begins when the service has
        been told to drain, too, so that it is answered whole. Raises UnavailableError where that
        has been before.
        """
        if self.is_draining:
            raise UnavailableError("the orchestrator is shutting down; try another one")
        self._admitted += 1
        try:
            yield self._generate
        finally:
            self._admitted -= 1
            self._idle.set()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        """Started, then Tokens for each verdict, then Finished."""
        with self.admission() as generate:
            async with contextlib.aclosing(generate(request)) as events:  # type: ignore[type-var]
                async for event in events:
                    yield event

    async def _generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self.metrics.running.inc()
        span = start_span("generate", request.traceparent, request_id=request.request_id)
        request = replace(request, traceparent=span.traceparent)
        outcome = "abandoned"
        try:
            events = self._engines.generate(request)
            async with contextlib.aclosing(events) as stream:  # type: ignore[type-var]
                async for event in stream:
                    self.traffic.note(event)
                    if isinstance(event, Finished):
                        outcome = ""
                        self._note_finished(request, event)
                        span.note(**_facts(event))
                    yield event
        except Exception as error:
            outcome = "error"
            self.metrics.note_error(error)
            span.fail(error)
            get_logger().info("failed", request_id=request.request_id, reason=reason_of(error))
            raise
        finally:
            if outcome:
                self.metrics.note_ended(outcome)
                span.note(outcome=outcome)
            span.end()
            self.metrics.running.dec()

    async def look(self) -> None:
        """Brings what is counted of the services up to date, if they can be asked."""
        # Not `wait_for`: before Python 3.12 it swallows a cancellation that comes with the result.
        asking = asyncio.ensure_future(self.cluster())
        try:
            await asyncio.wait({asking}, timeout=CLUSTER_S)
            if asking.done() and not isinstance(asking.exception(), OutriderError):
                self.metrics.note_cluster(asking.result())
        finally:
            asking.cancel()

    def _note_finished(self, request: GenerationRequest, event: Finished) -> None:
        stats = event.stats
        self.metrics.note_finished(event.finish_reason.value, stats)
        get_logger().info(
            "generated",
            request_id=request.request_id,
            **_facts(event),
            total_ms=stats.total_us // 1000,
        )

    async def wait_for_drain(self, within_s: float) -> None:
        """Returns when it is told to drain, or after so many seconds."""
        waiting = asyncio.ensure_future(self._drain.wait())
        try:
            await asyncio.wait({waiting}, timeout=within_s)
        finally:
            waiting.cancel()

    async def start(self) -> None:
        """Brings the engines up."""
        await self._engines.start()

    async def drain(self) -> None:
        """Returns when the running requests have ended."""
        self._drain.set()
        while self._admitted:
            self._idle.clear()
            await self._idle.wait()

    async def stop(self) -> None:
        """Takes the engines down."""
        await self._engines.stop()


def _facts(event: Finished) -> dict[str, Attribute]:
    """What logs and traces tell of an answer: how it ended, and counts."""
    stats = event.stats
    return {
        "finish_reason": event.finish_reason.value,
        "emitted_tokens": stats.emitted_tokens,
        "target_passes": stats.target_passes,
        "accepted_tokens": stats.accepted_tokens,
    }
