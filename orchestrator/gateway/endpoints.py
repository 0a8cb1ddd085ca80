"""The paths of the HTTP endpoint: convert, generate, convert."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from orchestrator.engines import Engines
from orchestrator.front import Front
from orchestrator.gateway.answering import respond, unless_gone
from orchestrator.gateway.bodies import (
    Body,
    ChatBody,
    CompletionBody,
    DetokenizeBody,
    Generation,
    TokenizeBody,
)
from orchestrator.gateway.extras import usage_of
from orchestrator.gateway.failing import refused
from orchestrator.gateway.guard import response_of
from orchestrator.gateway.outcomes import (
    Chat,
    Completion,
    CompletionChoice,
    Detokenized,
    Failure,
    Model,
    Models,
    Tokenized,
)
from orchestrator.gateway.reading import (
    Job,
    chat_job,
    completion_job,
    messages_of,
    unknown_fields,
)
from orchestrator.gateway.telling import ChatTelling, CompletionTelling, Head, Wanted
from orchestrator.requests import Prompt, Stats
from outrider.errors import InvalidArgumentError, NotFoundError, OutriderError, require
from outrider.telemetry.logs import get_logger
from outrider.types import ModelInfo
from outrider.version import __version__
from outrider.vocabulary import TextDecoder, Vocabulary

HEALTH = "/health"
AGAIN = {"Retry-After": "1"}
FAILURES: dict[int | str, dict[str, object]] = {
    status: {"model": Failure} for status in (400, 401, 404, 413, 429, 500, 503, 504)
}
STREAMED: dict[int | str, dict[str, object]] = {
    200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


@dataclass(frozen=True, slots=True)
class Desk:
    """What the paths work with. `names` are those that the model is asked by; none: its own."""

    front: Front
    names: Sequence[str]
    default_max_tokens: int

    async def target(self, name: str | None = None) -> ModelInfo:
        """The model; raises NotFoundError where another one is asked for."""
        info = await self.front.model_info()
        names = self.shown(info)
        if name and name not in names:
            raise NotFoundError(
                f"model {name!r} is not served here; ask for {' or '.join(map(repr, names))}"
            )
        return info

    def shown(self, info: ModelInfo) -> Sequence[str]:
        """The names that it answers to."""
        return self.names or (info.model_name,)


def routes(desk: Desk) -> APIRouter:
    """All paths."""
    router = APIRouter()

    @router.post(
        "/v1/chat/completions",
        response_model=Chat,
        responses={**FAILURES, **STREAMED},
        tags=["OpenAI"],
    )
    async def chat_completions(body: ChatBody, request: Request) -> Response:
        """The next turn of a conversation."""
        head = await _begin(desk, body, request, "chatcmpl")
        job = _traced(chat_job(body, request.state.request_id, desk.default_max_tokens), request)
        job, ids = await _with_ids(desk.front, job, body)
        telling = ChatTelling(
            head,
            _wanted(body),
            prompt_ids=ids[0] if ids else None,
        )
        return await respond(request, desk.front, job, body, telling)

    @router.post(
        "/v1/completions",
        response_model=Completion,
        responses={**FAILURES, **STREAMED},
        tags=["OpenAI"],
    )
    async def completions(body: CompletionBody, request: Request) -> Response:
        """What follows a text, or each of several."""
        head = await _begin(desk, body, request, "cmpl")
        job = _traced(completion_job(body, request.state.request_id), request)
        echoes = await _echoes(desk, job) if job.echoes else ()
        job, ids = await _with_ids(desk.front, job, body)
        telling = CompletionTelling(
            head,
            job.n,
            _wanted(body),
            echoes=echoes,
            prompt_ids=ids,
        )
        if not job.has_answer:
            require(not body.stream, "max_tokens is 0: there is nothing to stream; set stream off")
            return await unless_gone(request, _echo_only(desk, job, head, echoes))
        return await respond(request, desk.front, job, body, telling)

    @router.get("/v1/models", response_model=Models, responses=FAILURES, tags=["OpenAI"])
    async def models() -> Models:
        """The names that the model answers to."""
        info = await desk.target()
        return Models(object="list", data=[_model(name, info) for name in desk.shown(info)])

    @router.get("/v1/models/", include_in_schema=False)
    async def models_too() -> Models:
        """For clients that end the address with a slash."""
        return await models()

    @router.get("/v1/models/{name:path}", response_model=Model, responses=FAILURES, tags=["OpenAI"])
    async def model(name: str) -> Model:
        """One of them."""
        return _model(name, await desk.target(name))

    @router.post("/tokenize", response_model=Tokenized, responses=FAILURES, tags=["Tokens"])
    async def tokenize(body: TokenizeBody, request: Request) -> Response:
        """The token ids of a text, or of a conversation as the model reads it."""
        _note_unknown(body, request)
        info = await desk.target(body.model)
        require(
            (body.prompt is None) != (body.messages is None),
            "give either prompt or messages",
        )
        prompt: Prompt = body.prompt or "" if body.messages is None else messages_of(body.messages)
        tokens = await desk.front.tokenize(prompt) if prompt else ()
        found = Tokenized(count=len(tokens), max_model_len=info.context_tokens, tokens=list(tokens))
        if body.return_token_strs:
            pieces = (await desk.front.vocabulary()).pieces
            found = found.model_copy(
                update={"token_strs": [pieces[t].decode(errors="replace") for t in tokens]}
            )
        return JSONResponse(found.model_dump(exclude_none=True))

    @router.post("/detokenize", response_model=Detokenized, responses=FAILURES, tags=["Tokens"])
    async def detokenize(body: DetokenizeBody, request: Request) -> Detokenized:
        """The text of token ids."""
        _note_unknown(body, request)
        info = await desk.target(body.model)
        for token in (min(body.tokens, default=0), max(body.tokens, default=0)):
            require(
                0 <= token < info.vocab_size,
                f"tokens has token id {token}; the model knows 0 to {info.vocab_size - 1}",
            )
        vocabulary = await desk.front.vocabulary()
        return Detokenized(prompt=await asyncio.to_thread(text_of, vocabulary, body.tokens))

    @router.head(HEALTH, include_in_schema=False)
    @router.get(HEALTH, tags=["Service"], responses={503: {"model": Failure}})
    async def health() -> Response:
        """200 while requests can be answered, else 503."""
        if desk.front.is_draining:
            return response_of(refused(503, "the orchestrator is shutting down", headers=AGAIN))
        try:
            await desk.front.model_info()
        except OutriderError as error:
            return response_of(refused(503, error.message, headers=AGAIN))
        return JSONResponse({"status": "ok"})

    @router.get("/metrics", tags=["Service"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """What was counted, for Prometheus."""
        await desk.front.look()
        return Response(
            generate_latest(desk.front.metrics.registry), media_type=CONTENT_TYPE_LATEST
        )

    @router.get("/version", tags=["Service"])
    async def version() -> dict[str, str]:
        """Outrider's version."""
        return {"version": __version__}

    return router


def text_of(vocabulary: Vocabulary, tokens: Sequence[int]) -> str:
    """What the tokens spell, control tokens left out."""
    decoder = TextDecoder(vocabulary)
    return "".join([*map(decoder.push, tokens), decoder.finish()])


async def _begin(desk: Desk, body: Generation, request: Request, kind: str) -> Head:
    _note_unknown(body, request)
    info = await desk.target(body.model)
    name = body.model or desk.shown(info)[0]
    return Head(f"{kind}-{request.state.request_id}", int(time.time()), name)


def _wanted(body: Generation) -> Wanted:
    return Wanted(bool(body.return_token_ids), bool(body.return_token_authors))


def _note_unknown(body: Body, request: Request) -> None:
    unknown = unknown_fields(body)
    if unknown:
        get_logger().info(
            "unknown_fields",
            request_id=request.state.request_id,
            fields=[name[:40] for name in sorted(unknown)[:20]],
        )


def _traced(job: Job, request: Request) -> Job:
    return replace(job, base=replace(job.base, traceparent=request.state.traceparent))


async def _with_ids(
    engines: Engines, job: Job, body: Generation
) -> tuple[Job, list[tuple[int, ...]]]:
    """The prompts' ids, where they are wanted; the job then has them, so that they are those."""
    if not body.return_token_ids:
        return job, []
    ids = [await _ids_of(engines, prompt) for prompt in job.prompts]
    return replace(job, prompts=tuple(ids)), ids


async def _ids_of(engines: Engines, prompt: Prompt) -> tuple[int, ...]:
    ids = tuple(part for part in prompt if isinstance(part, int))
    return ids or await engines.tokenize(prompt)


async def _echoes(desk: Desk, job: Job) -> list[str]:
    info = await desk.target()

    async def text(prompt: Prompt) -> str:
        if isinstance(prompt, str):
            return prompt
        ids = [part for part in prompt if isinstance(part, int)]
        for token in ids:
            if not 0 <= token < info.vocab_size:
                raise InvalidArgumentError(
                    f"prompt has token id {token}; the model knows 0 to {info.vocab_size - 1}"
                )
        return text_of(await desk.front.vocabulary(), ids)

    return [await text(prompt) for prompt in job.prompts]


async def _echo_only(desk: Desk, job: Job, head: Head, echoes: Sequence[str]) -> Response:
    """The prompts as they are, where no token behind them is wanted."""
    count = sum([len(await _ids_of(desk.front, prompt)) for prompt in job.prompts])
    choices = [
        CompletionChoice(index=i, text=echoes[i // job.n], logprobs=None, finish_reason="length")
        for i in range(job.count)
    ]
    usage = usage_of([Stats(prompt_tokens=count)], 1)
    outcome = Completion(**head.fields, object="text_completion", choices=choices, usage=usage)
    return JSONResponse(outcome.model_dump(exclude_unset=True))


def _model(name: str, info: ModelInfo) -> Model:
    return Model(
        id=name,
        object="model",
        created=0,
        owned_by="outrider",
        root=info.model_name,
        max_model_len=info.context_tokens,
    )
