"""An orchestrator that answers as it is told to, and remembers what it was asked."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import grpc

from outrider.types import PROTOCOL_VERSION
from outrider.v1 import common_pb2, orchestrator_pb2
from outrider.v1.orchestrator_pb2_grpc import OrchestratorServiceServicer
from outrider.wire.errors import abort

HANG = object()
"""A step that waits until the caller gives up."""


@dataclass
class PlainStatus:
    """A step that ends the call with a bare code, as a foreign server would."""

    code: grpc.StatusCode
    details: str = ""


class ScriptedOrchestrator(OrchestratorServiceServicer):
    """Plays `script`: messages are sent, exceptions abort, a callable is called, an event awaited.

    `scripts` has other ones for single choices, `attempts` for the first calls, one each.
    """

    def __init__(self) -> None:
        self.script: Sequence[object] = ()
        self.scripts: dict[int, Sequence[object]] = {}
        self.attempts: list[Sequence[object]] = []
        self.requests: list[orchestrator_pb2.GenerateRequest] = []
        self.metadata: list[dict[str, object]] = []
        self.cancelled = asyncio.Event()
        self.hanging = asyncio.Event()
        self.unary_error: Exception | None = None
        self.unary_errors: list[Exception] = []
        self.protocol_version = PROTOCOL_VERSION
        self.is_silent = False
        self.running = 0
        self.most_running = 0

    async def Generate(self, request, context) -> AsyncIterator[orchestrator_pb2.GenerateResponse]:  # noqa: N802
        self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        self.metadata.append(dict(context.invocation_metadata()))
        script = self.scripts.get(request.choice_index, self.script)
        if self.attempts:
            script = self.attempts.pop(0)
        try:
            for step in script:
                if step is HANG:
                    self.hanging.set()
                    await asyncio.Event().wait()
                elif isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, Exception):
                    await abort(context, step)
                elif isinstance(step, PlainStatus):
                    await context.abort(step.code, step.details)
                elif isinstance(step, Callable):
                    step()
                else:
                    yield step
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise
        finally:
            self.running -= 1

    async def GetModelInfo(self, request, context):  # noqa: N802
        if self.is_silent:
            self.hanging.set()
            await asyncio.Event().wait()
        if self.unary_errors:
            await abort(context, self.unary_errors.pop(0))
        if self.unary_error:
            await abort(context, self.unary_error)
        return orchestrator_pb2.OrchestratorServiceGetModelInfoResponse(
            model=common_pb2.ModelInfo(
                protocol_version=self.protocol_version,
                model_name="sea",
                backend="scripted",
                tokenizer_hash="abc",
                vocab_size=100,
                context_tokens=512,
                eos_token_ids=[2, 3],
            )
        )

    async def GetCluster(self, request, context):  # noqa: N802
        if self.unary_error:
            await abort(context, self.unary_error)
        return orchestrator_pb2.GetClusterResponse(
            verify=orchestrator_pb2.Service(
                name="verify",
                address="big:7072",
                usable=True,
                model=common_pb2.ModelInfo(model_name="sea"),
                round_trip_us=150,
            ),
            drafts=[orchestrator_pb2.Service(name="attic", problem="does not answer")],
        )


@dataclass
class RunningOrchestrator:
    """A scripted orchestrator that listens."""

    servicer: ScriptedOrchestrator
    server: grpc.aio.Server
    address: str


def started(**changes: object) -> orchestrator_pb2.GenerateResponse:
    fields = {
        "request_id": "req-1",
        "seed": 7,
        "prompt_tokens": 3,
        "drafts": ["attic"],
        "notices": ["hello"],
        "mode": common_pb2.ACCEPTANCE_MODE_BLOCK,
        "model": "sea",
    }
    return orchestrator_pb2.GenerateResponse(
        started=orchestrator_pb2.GenerateStarted(**(fields | changes))
    )


def tokens(*triples: tuple[int, str, str]) -> orchestrator_pb2.GenerateResponse:
    return orchestrator_pb2.GenerateResponse(
        tokens=orchestrator_pb2.GenerateTokens(
            tokens=[
                orchestrator_pb2.EmittedToken(id=id_, text=text, draft=draft)
                for id_, text, draft in triples
            ]
        )
    )


def finished(**changes: object) -> orchestrator_pb2.GenerateResponse:
    stats = orchestrator_pb2.GenerateStats(
        prompt_tokens=3,
        cached_tokens=2,
        emitted_tokens=4,
        target_passes=2,
        verified_tokens=8,
        accepted_tokens=2,
        drafts=[
            orchestrator_pb2.DraftStats(
                name="attic", drafted_tokens=9, accepted_tokens=2, lost=True
            )
        ],
        first_token_us=1000,
        total_us=2_000_000,
        messages=11,
        wire_bytes=1234,
        resumes=1,
        wait_us=[5, 6],
    )
    fields = {
        "finish_reason": common_pb2.FINISH_REASON_STOP,
        "stats": stats,
        "notices": ["a draft was lost"],
    }
    return orchestrator_pb2.GenerateResponse(
        finished=orchestrator_pb2.GenerateFinished(**(fields | changes))
    )


FIRST_VERDICT = tokens((11, "The", "attic"), (12, " s", "attic"), (13, "ea", ""))
SECOND_VERDICT = tokens((14, ".", ""))
WHOLE_ANSWER = (started(), FIRST_VERDICT, SECOND_VERDICT, finished())
