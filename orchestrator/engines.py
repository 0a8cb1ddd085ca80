"""Where engines run. The servicer knows this protocol only; the Ray one is in the cluster room."""

from collections.abc import AsyncIterator
from typing import Protocol

from orchestrator.engine import Engine
from orchestrator.requests import ClusterView, Event, GenerationRequest, Prompt
from orchestrator.settings import OrchestratorSettings
from outrider.diagnosis import Diagnosis
from outrider.types import ModelInfo
from outrider.vocabulary import Vocabulary


class Engines(Protocol):
    """One or more engines behind one front."""

    async def start(self) -> None:
        """Brings the engines up."""
        ...

    async def stop(self) -> None:
        """Takes them down."""
        ...

    async def model_info(self) -> ModelInfo:
        """The target's facts."""
        ...

    async def tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        """The token ids of a prompt."""
        ...

    async def vocabulary(self) -> Vocabulary:
        """The bytes of every token of the target."""
        ...

    async def cluster(self) -> ClusterView:
        """The verifier and the drafts."""
        ...

    async def diagnose(self, *, with_bandwidth: bool) -> Diagnosis:
        """What every service runs on, and the lines to them, measured now."""
        ...

    def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        """Started, then Tokens for each verdict, then Finished."""
        ...


def make_engines(settings: OrchestratorSettings) -> Engines:
    """The engines that the settings ask for; imports Ray only where it is used."""
    if settings.ray == "local":
        return Engine(settings)
    from orchestrator.cluster.ray_engines import RayEngines

    return RayEngines(settings)
