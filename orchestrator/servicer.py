"""gRPC in, engine events out: convert, call, convert."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc

from orchestrator.engines import Engines
from orchestrator.requests import (
    EmittedToken,
    Event,
    GenerationRequest,
    Prompt,
    ServiceView,
    Started,
    Stats,
    TokenLogprob,
    Tokens,
)
from outrider.errors import InvalidArgumentError, OutriderError
from outrider.request_ids import REQUEST_ID, request_id_of
from outrider.v1 import orchestrator_pb2, orchestrator_pb2_grpc
from outrider.wire.convert import info_to
from outrider.wire.convert_host import diagnosis_to
from outrider.wire.convert_sampling import (
    finish_to,
    mode_from,
    mode_to,
    sampling_from,
    stop_from,
)
from outrider.wire.watched import traceparent_of

MAX_REQUEST_BYTES = 8 * 1024 * 1024
MAX_MESSAGES = 8192
MAX_TOKEN_IDS = 1024 * 1024

Context = grpc.aio.ServicerContext[Any, Any]


class OrchestratorServicer(orchestrator_pb2_grpc.OrchestratorServiceServicer):
    """What users call."""

    def __init__(self, engines: Engines) -> None:
        self._engines = engines

    async def GetModelInfo(
        self, request: orchestrator_pb2.OrchestratorServiceGetModelInfoRequest, context: Context
    ) -> orchestrator_pb2.OrchestratorServiceGetModelInfoResponse:
        """Which target model answers."""
        info = await self._engines.model_info()
        return orchestrator_pb2.OrchestratorServiceGetModelInfoResponse(model=info_to(info))

    async def GetCluster(
        self, request: orchestrator_pb2.GetClusterRequest, context: Context
    ) -> orchestrator_pb2.GetClusterResponse:
        """The verifier and the drafts."""
        view = await self._engines.cluster()
        return orchestrator_pb2.GetClusterResponse(
            verify=_service_to(view.verify), drafts=map(_service_to, view.drafts)
        )

    async def Diagnose(
        self, request: orchestrator_pb2.DiagnoseRequest, context: Context
    ) -> orchestrator_pb2.DiagnoseResponse:
        """What every service runs on, and the lines between them."""
        found = await self._engines.diagnose(with_bandwidth=request.measure_bandwidth)
        return diagnosis_to(found)

    async def Generate(
        self, request: orchestrator_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[orchestrator_pb2.GenerateResponse]:
        """Started, tokens of each verdict, finished."""
        metadata = dict(context.invocation_metadata() or ())
        request_id = request_id_of(str(metadata.get(REQUEST_ID, "")))
        try:
            wanted = request_from(request, request_id)
            wanted = replace(wanted, traceparent=traceparent_of(context))
            events = self._engines.generate(wanted)
            async with contextlib.aclosing(events) as stream:  # type: ignore[type-var]
                async for event in stream:
                    yield event_to(event)
        except OutriderError as error:
            error.request_id = request_id
            raise


def request_from(message: orchestrator_pb2.GenerateRequest, request_id: str) -> GenerationRequest:
    """Raises InvalidArgumentError for whatever can never work, before it is looked at closely."""
    for what, size, most in (
        ("bytes", message.ByteSize(), MAX_REQUEST_BYTES),
        ("messages", len(message.chat.messages), MAX_MESSAGES),
        ("token ids", len(message.token_ids.ids), MAX_TOKEN_IDS),
        ("delivered token ids", len(message.delivered_ids), MAX_TOKEN_IDS),
    ):
        if size > most:
            raise InvalidArgumentError(f"the request has {size} {what}; give at most {most}")
    if not message.HasField("stop") or not message.stop.max_tokens:
        raise InvalidArgumentError("max_tokens is 0 or unset; give at least 1")
    draft = message.draft
    return GenerationRequest(
        request_id=request_id,
        prompt=_prompt_from(message),
        sampling=sampling_from(message.sampling),
        stop=stop_from(message.stop),
        model=message.model,
        max_drafts=draft.max_drafts if draft.HasField("max_drafts") else None,
        num_speculative_tokens=(
            draft.num_speculative_tokens if draft.HasField("num_speculative_tokens") else None
        ),
        width=draft.width if draft.HasField("width") else None,
        mode=mode_from(message.sampling.mode),
        stop_strings=tuple(message.stop_strings),
        include_stop_string=message.include_stop_string,
        logprobs=message.logprobs if message.HasField("logprobs") else None,
        choice_index=message.choice_index,
        delivered_ids=tuple(message.delivered_ids),
    )


def _prompt_from(message: orchestrator_pb2.GenerateRequest) -> Prompt:
    kind = message.WhichOneof("prompt")
    prompt: Prompt = ""
    if kind == "text":
        prompt = message.text
    elif kind == "chat":
        prompt = tuple((m.role, m.content) for m in message.chat.messages)
    elif kind == "token_ids":
        prompt = tuple(message.token_ids.ids)
    if not prompt:
        raise InvalidArgumentError(
            "the prompt is empty; give text, a chat with at least one message, or token ids"
        )
    return prompt


def event_to(event: Event) -> orchestrator_pb2.GenerateResponse:
    """An engine event as users get it."""
    if isinstance(event, Started):
        return orchestrator_pb2.GenerateResponse(
            started=orchestrator_pb2.GenerateStarted(
                request_id=event.request_id,
                seed=event.seed,
                prompt_tokens=event.prompt_tokens,
                drafts=event.drafts,
                notices=event.notices,
                mode=mode_to(event.mode),
                model=event.model,
                delivered_tokens=event.delivered_tokens,
            )
        )
    if isinstance(event, Tokens):
        return orchestrator_pb2.GenerateResponse(
            tokens=orchestrator_pb2.GenerateTokens(tokens=map(_token_to, event.tokens))
        )
    return orchestrator_pb2.GenerateResponse(
        finished=orchestrator_pb2.GenerateFinished(
            finish_reason=finish_to(event.finish_reason),
            stats=_stats_to(event.stats),
            notices=event.notices,
            stop_string=event.stop_string,
        )
    )


def _token_to(token: EmittedToken) -> orchestrator_pb2.EmittedToken:
    return orchestrator_pb2.EmittedToken(
        id=token.id,
        text=token.text,
        draft=token.draft,
        logprob=_logprob_to(token.logprob) if token.logprob is not None else None,
        top_logprobs=map(_logprob_to, token.top_logprobs),
    )


def _logprob_to(logprob: TokenLogprob) -> orchestrator_pb2.TokenLogprob:
    return orchestrator_pb2.TokenLogprob(
        id=logprob.id, logprob=logprob.logprob, piece=logprob.piece
    )


def _stats_to(stats: Stats) -> orchestrator_pb2.GenerateStats:
    return orchestrator_pb2.GenerateStats(
        prompt_tokens=stats.prompt_tokens,
        cached_tokens=stats.cached_tokens,
        emitted_tokens=stats.emitted_tokens,
        target_passes=stats.target_passes,
        verified_tokens=stats.verified_tokens,
        accepted_tokens=stats.accepted_tokens,
        drafts=[
            orchestrator_pb2.DraftStats(
                name=d.name,
                drafted_tokens=d.drafted_tokens,
                accepted_tokens=d.accepted_tokens,
                lost=d.lost,
                steps=d.steps,
                step_us=d.step_us,
                cached_tokens=d.cached_tokens,
                paced_steps=d.paced_steps,
                paced_us=d.paced_us,
                wire_rounds=d.wire_rounds,
                wire_us=d.wire_us,
            )
            for d in stats.drafts
        ],
        first_token_us=stats.first_token_us,
        total_us=stats.total_us,
        messages=stats.messages,
        wire_bytes=stats.wire_bytes,
        resumes=stats.resumes,
        wait_us=stats.wait_us,
        pass_rows=stats.pass_rows,
        forward_us=stats.forward_us,
        drafted_passes=stats.drafted_passes,
        accepted_per_position=stats.accepted_per_position,
        queue_us=stats.queue_us,
        accept_us=stats.accept_us,
        reconcile_us=stats.reconcile_us,
        gap_us=stats.gap_us,
        batch_rows=stats.batch_rows,
        guess_outcomes=stats.guesses.outcomes,
        guessed_places=stats.guesses.guessed,
        found_places=stats.guesses.found,
    )


def _service_to(view: ServiceView) -> orchestrator_pb2.Service:
    return orchestrator_pb2.Service(
        name=view.name,
        address=view.address,
        usable=view.usable,
        problem=view.problem,
        model=info_to(view.model) if view.model is not None else None,
        round_trip_us=view.round_trip_us,
    )
