"""Engines as Ray actors: on this machine with an embedded Ray, or on an existing cluster."""

import asyncio
import contextlib
import itertools
import logging
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from orchestrator.cluster.engine_actor import EngineActor
from orchestrator.requests import ClusterView, Event, Finished, GenerationRequest, Prompt
from orchestrator.settings import OrchestratorSettings
from outrider.diagnosis import Diagnosis
from outrider.errors import OutriderError, UnavailableError
from outrider.telemetry.logs import get_logger
from outrider.types import ModelInfo
from outrider.vocabulary import Vocabulary

STOP_TIMEOUT_S = 5.0

T = TypeVar("T")


@contextlib.contextmanager
def _ray_errors() -> Iterator[None]:
    """A dead actor is an unavailable service to the caller."""
    import ray

    try:
        yield
    except ray.exceptions.RayActorError as error:
        get_logger().error("engine_lost", problem=str(error))
        raise UnavailableError(
            "the engine that ran this request died; it is being restarted, try again",
            retry_after_s=1.0,
        ) from error


def _value(outcome: T | OutriderError) -> T:
    if isinstance(outcome, OutriderError):
        raise outcome
    return outcome


class RayEngines:
    """Requests go to the replicas in turn; Ray restarts a replica that dies."""

    def __init__(self, settings: OrchestratorSettings) -> None:
        self._settings = settings
        self._actors: list[Any] = []
        self._turn = itertools.count()
        self._vocabulary: Vocabulary | None = None

    async def start(self) -> None:
        """Starts or joins Ray, then the actors. Raises UnavailableError where Ray cannot be had."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if self._settings.ray == "embedded":
            # Ray's own ports listen on every interface: only who knows the token is answered. It
            # is read when Ray is imported.
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        import ray

        try:
            await asyncio.to_thread(self._init, ray)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UnavailableError(
                f"Ray ({self._settings.ray}) cannot be used: {error}. Give --ray local to do "
                "without, or the address of a running cluster"
            ) from error
        actor_class = ray.remote(EngineActor)
        self._actors = [
            actor_class.options(
                num_cpus=0,
                max_restarts=-1,
                max_concurrency=self._settings.max_requests + 8,
            ).remote(self._settings.without_secrets())
            for _ in range(self._settings.engines)
        ]
        try:
            await asyncio.gather(*(actor.start.remote() for actor in self._actors))
        except ray.exceptions.RayActorError as error:
            raise UnavailableError(
                f"an engine could not start in Ray ({self._settings.ray}): {error}. What the "
                "settings name, such as the folder of --tls, has to be on every node"
            ) from error
        get_logger().info("engines_up", engines=len(self._actors), ray=self._settings.ray)

    async def stop(self) -> None:
        """Takes the actors down, and Ray with them where it was embedded."""
        import ray

        stops = [asyncio.wrap_future(a.stop.remote().future()) for a in self._actors]
        if stops:
            await asyncio.wait(stops, timeout=STOP_TIMEOUT_S)
        for actor in self._actors:
            ray.kill(actor)
        await asyncio.to_thread(ray.shutdown)

    async def model_info(self) -> ModelInfo:
        """The target's facts."""
        with _ray_errors():
            info: ModelInfo | OutriderError = await self._next().model_info.remote()
        return _value(info)

    async def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """The token ids of a prompt."""
        with _ray_errors():
            ids: tuple[int, ...] | OutriderError = await self._next().tokenize.remote(prompt)
        return _value(ids)

    async def vocabulary(self) -> Vocabulary:
        """The bytes of every token of the target, fetched anew when that has another tokenizer."""
        info = await self.model_info()
        if self._vocabulary is None or self._vocabulary.hash != info.tokenizer_hash:
            with _ray_errors():
                found: Vocabulary | OutriderError = await self._next().vocabulary.remote()
            self._vocabulary = _value(found)
        return self._vocabulary

    async def cluster(self) -> ClusterView:
        """The verifier and the drafts."""
        with _ray_errors():
            view: ClusterView = await self._next().cluster.remote()
        return view

    async def diagnose(self, *, with_bandwidth: bool) -> Diagnosis:
        """What every service runs on, and the lines to them, measured now."""
        with _ray_errors():
            found: Diagnosis = await self._next().diagnose.remote(with_bandwidth=with_bandwidth)
        return found

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        """Started, then Tokens for each verdict, then Finished."""
        references = self._next().generate.options(num_returns="streaming").remote(request)
        is_over = False
        try:
            async for reference in references:
                with _ray_errors():
                    outcome = await reference
                if isinstance(outcome, OutriderError):
                    is_over = True
                    raise outcome
                for event in outcome:
                    is_over = isinstance(event, Finished)
                    yield event
        finally:
            if not is_over:
                # Not awaited: whoever leaves may be cancelled again before a thread has begun.
                asyncio.get_running_loop().run_in_executor(None, self._cancel, references)

    def _init(self, ray: Any) -> None:
        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": True}
        if self._settings.ray == "embedded":
            ray.init(address="local", include_dashboard=False, num_cpus=1, **options)
        else:
            ray.init(address=self._settings.ray, **options)

    def _next(self) -> Any:
        return self._actors[next(self._turn) % len(self._actors)]

    @staticmethod
    def _cancel(references: Any) -> None:
        import ray

        ray.cancel(references)
