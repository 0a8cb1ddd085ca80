"""The engines as everyone who serves them sees them: counted, and closed when the service ends.

Knows no gRPC and no HTTP.
"""

import asyncio
from collections.abc import AsyncIterator

from orchestrator.engines import Engines
from orchestrator.metrics import FrontMetrics
from orchestrator.requests import ClusterView, Event, Finished, GenerationRequest, Prompt
from outrider.diagnosis import Diagnosis
from outrider.errors import UnavailableError
from outrider.types import ModelInfo
from outrider.vocabulary import Vocabulary

CLUSTER_S = 3.0
"""Longer nobody who asks for metrics waits for services that do not answer."""


class Front:
    """Engines that refuse new requests once they are told to drain."""

    def __init__(self, engines: Engines, metrics: FrontMetrics) -> None:
        self.metrics = metrics
        self.is_draining = False
        """Whether it was told to."""
        self._engines = engines
        self._running = 0
        self._idle = asyncio.Event()

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

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        """Started, then Tokens for each verdict, then Finished."""
        if self.is_draining:
            raise UnavailableError("the orchestrator is shutting down; try another one")
        self._running += 1
        self.metrics.running.inc()
        outcome = "abandoned"
        try:
            async for event in self._engines.generate(request):
                if isinstance(event, Finished):
                    outcome = ""
                    self.metrics.note_finished(event.finish_reason.value, event.stats)
                yield event
        except Exception:
            outcome = "error"
            raise
        finally:
            if outcome:
                self.metrics.note_ended(outcome)
            self.metrics.running.dec()
            self._running -= 1
            self._idle.set()

    async def look(self) -> None:
        """Brings what is counted of the services up to date."""
        try:
            self.metrics.note_cluster(await asyncio.wait_for(self.cluster(), CLUSTER_S))
        except asyncio.TimeoutError:
            return  # the numbers of the last look stand

    async def start(self) -> None:
        """Brings the engines up."""
        await self._engines.start()

    async def drain(self) -> None:
        """Returns when the running requests have ended."""
        self.is_draining = True
        while self._running:
            self._idle.clear()
            await self._idle.wait()

    async def stop(self) -> None:
        """Takes the engines down."""
        await self._engines.stop()
