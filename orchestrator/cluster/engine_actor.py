"""An engine in a Ray actor: one Ray call a request, never one a token's round."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from orchestrator.engine import Engine
from orchestrator.requests import ClusterView, Event, GenerationRequest, Prompt
from orchestrator.settings import OrchestratorSettings
from outrider.diagnosis import Diagnosis
from outrider.errors import InternalError, OutriderError
from outrider.telemetry.logs import configure_logs, get_logger
from outrider.telemetry.traces import configure_traces, stop_traces
from outrider.types import ModelInfo
from outrider.vocabulary import Vocabulary

Outcome = list[Event] | OutriderError


class EngineActor:
    """Drives many sessions over gRPC. Its requests end with it; Ray starts it anew.

    Domain errors travel as values: Ray would wrap them in its own exceptions.
    """

    def __init__(self, settings: OrchestratorSettings) -> None:
        configure_logs("engine", settings.log_level, settings.log_format)
        configure_traces("engine", settings.traces_endpoint, settings.traces_sample_ratio)
        self._engine = Engine(settings)
        self._starting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Looks for the verifier and the drafts. Ray does not call it on a restarted actor, so
        every method does."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._engine.start())
        await asyncio.shield(self._starting)

    async def stop(self) -> None:
        """Closes the channels, and sends what is left of traces."""
        await self._engine.stop()
        await asyncio.to_thread(stop_traces)

    async def model_info(self) -> ModelInfo | OutriderError:
        """The target's facts."""
        await self.start()
        try:
            return await self._engine.model_info()
        except OutriderError as error:
            return error

    async def tokenize(self, prompt: Prompt) -> tuple[int, ...] | OutriderError:
        """The token ids of a prompt."""
        await self.start()
        try:
            return await self._engine.tokenize(prompt)
        except OutriderError as error:
            return error

    async def vocabulary(self) -> Vocabulary | OutriderError:
        """The bytes of every token of the target."""
        await self.start()
        try:
            return await self._engine.vocabulary()
        except OutriderError as error:
            return error

    async def cluster(self) -> ClusterView:
        """The verifier and the drafts."""
        await self.start()
        return await self._engine.cluster()

    async def diagnose(self, *, with_bandwidth: bool) -> Diagnosis:
        """What every service runs on, and the lines to them, measured now."""
        await self.start()
        return await self._engine.diagnose(with_bandwidth=with_bandwidth)

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Outcome]:
        """The request's events; those that came while the front was busy travel together."""
        await self.start()
        queue: asyncio.Queue[Event | OutriderError | None] = asyncio.Queue(256)
        runner = asyncio.create_task(self._run(request, queue))
        try:
            is_over = False
            while not is_over:
                waiting = [await queue.get()]
                while not queue.empty():
                    waiting.append(queue.get_nowait())
                is_over = waiting[-1] is None
                events = [e for e in waiting if e is not None and not isinstance(e, OutriderError)]
                if events:
                    yield events
                for error in waiting:
                    if isinstance(error, OutriderError):
                        yield error
        finally:
            runner.cancel()
            await asyncio.gather(runner, return_exceptions=True)

    async def _run(
        self,
        request: GenerationRequest,
        queue: "asyncio.Queue[Event | OutriderError | None]",
    ) -> None:
        try:
            events = self._engine.generate(request)
            async with contextlib.aclosing(events) as stream:  # type: ignore[type-var]
                async for event in stream:
                    await queue.put(event)
        except OutriderError as error:
            await queue.put(error)
        except Exception as error:
            get_logger().error("unexpected_error", request_id=request.request_id, exc_info=error)
            await queue.put(InternalError("the engine failed; its log has the details"))
        await queue.put(None)
