"""gRPC in, sessions and verdicts out: convert, call, convert."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any

import grpc

from outrider.errors import InvalidArgumentError, OutriderError
from outrider.host import ModelLoad
from outrider.models.base import Tokenizer
from outrider.telemetry.logs import get_logger
from outrider.telemetry.traces import Attribute
from outrider.v1 import verify_pb2, verify_pb2_grpc
from outrider.wire.calls import first_message, internal_error
from outrider.wire.convert import chunk_from, info_to, verdict_to, verify_opening_from
from outrider.wire.convert_host import host_to
from outrider.wire.convert_plan import policy_from
from outrider.wire.convert_sampling import finish_to
from outrider.wire.diagnosing import Teller
from outrider.wire.watched import watched
from verify_service.scheduler import Scheduler
from verify_service.sessions import MAX_UNREAD_VERDICTS, Session

VOCABULARY_CHUNK_TOKENS = 16384

OVERHEAD_BYTES = 65536
"""Roles and framing of a long conversation, which are no text."""

Context = grpc.aio.ServicerContext[Any, Any]


class VerifyServicer(verify_pb2_grpc.VerifyServiceServicer):
    """Serves one target model."""

    def __init__(
        self, scheduler: Scheduler, max_sessions: int, load: ModelLoad | None = None
    ) -> None:
        self._scheduler = scheduler
        self._max_sessions = max_sessions
        self._model = scheduler.verifier.model
        self._teller = Teller(load or ModelLoad(max_sessions=max_sessions))

    async def GetModelInfo(
        self, request: verify_pb2.VerifyServiceGetModelInfoRequest, context: Context
    ) -> verify_pb2.VerifyServiceGetModelInfoResponse:
        """Which model the service runs."""
        return verify_pb2.VerifyServiceGetModelInfoResponse(
            model=info_to(self._model.info, self._max_sessions)
        )

    async def Diagnose(
        self, request: verify_pb2.VerifyServiceDiagnoseRequest, context: Context
    ) -> verify_pb2.VerifyServiceDiagnoseResponse:
        """What the service runs on."""
        host, payload = await self._teller.tell(len(request.payload), request.reply_bytes)
        return verify_pb2.VerifyServiceDiagnoseResponse(host=host_to(host), payload=payload)

    async def GetVocabulary(
        self, request: verify_pb2.GetVocabularyRequest, context: Context
    ) -> AsyncIterator[verify_pb2.GetVocabularyResponse]:
        """The bytes of every token."""
        vocabulary = self._tokenizer().vocabulary
        for start in range(0, len(vocabulary), VOCABULARY_CHUNK_TOKENS):
            part = slice(start, start + VOCABULARY_CHUNK_TOKENS)
            yield verify_pb2.GetVocabularyResponse(
                pieces=vocabulary.pieces[part], control=vocabulary.control[part]
            )

    async def Tokenize(
        self, request: verify_pb2.TokenizeRequest, context: Context
    ) -> verify_pb2.TokenizeResponse:
        """Text to token ids."""
        kind = request.WhichOneof("kind")
        if kind is None:
            raise InvalidArgumentError("nothing to tokenize; give text or a chat")
        self._refuse_endless(request)
        if kind == "chat":
            messages = [(m.role, m.content) for m in request.chat.messages]
            if not messages:
                raise InvalidArgumentError("the chat has no messages; give at least one")
            ids = await asyncio.to_thread(self._tokenizer().encode_chat, messages)
        else:
            ids = await asyncio.to_thread(self._tokenizer().encode, request.text)
        return verify_pb2.TokenizeResponse(ids=ids)

    async def Verify(
        self, request_iterator: AsyncIterator[verify_pb2.VerifyRequest], context: Context
    ) -> AsyncIterator[verify_pb2.VerifyResponse]:
        """One session, from open to its last verdict, half-close or close."""
        with watched("verify", context, self._scheduler.metrics) as span:
            first = await first_message(request_iterator)
            if first is None or first.WhichOneof("kind") != "open":
                raise InvalidArgumentError("a verify stream starts with open; send it first")
            session = await self._scheduler.open(verify_opening_from(first.open))
            reader = asyncio.create_task(self._read(request_iterator, session))
            try:
                opened = verify_pb2.VerifyOpened(
                    cached_tokens=session.cached_tokens, finish_reason=finish_to(session.at_end)
                )
                yield verify_pb2.VerifyResponse(opened=opened)
                while session.at_end is None:
                    # Looked at first: verdicts that fell before it are still told before it.
                    error = session.error
                    verdicts = session.read()
                    if len(verdicts) >= MAX_UNREAD_VERDICTS:
                        # It was not verified for as long as so many waited.
                        self._scheduler.wake()
                    for verdict in verdicts:
                        yield verify_pb2.VerifyResponse(verdict=verdict_to(verdict))
                        if verdict.finish_reason is not None:
                            return
                    if error is not None:
                        raise error
                    if session.unread_since is None and session.error is None:
                        if reader.done():
                            return
                        session.changed.clear()
                        await session.changed.wait()
            finally:
                reader.cancel()
                span.note(**_told(session))
                get_logger().info("session_ended", **_told(session))
                await self._scheduler.close(session)

    async def _read(
        self, requests: AsyncIterator[verify_pb2.VerifyRequest], session: Session
    ) -> None:
        """Feeds the session until the caller half-closes, closes, or sends something wrong."""
        try:
            async for request in requests:
                kind = request.WhichOneof("kind")
                if kind == "extend":
                    chunk = chunk_from(request.extend, self._model.info.vocab_size)
                    session.tell(chunk, time.monotonic())
                elif kind == "policy":
                    session.tell(policy_from(request.policy), time.monotonic())
                elif kind == "close":
                    return
                else:
                    raise InvalidArgumentError(
                        f"got {kind or 'an empty message'} in an open session; send extend, policy "
                        "or close"
                    )
                self._scheduler.hear(session)
        except OutriderError as error:
            session.fail(error)
        except grpc.aio.AioRpcError:
            return
        except Exception as error:
            session.fail(internal_error(error, "read"))
        finally:
            session.changed.set()

    def _refuse_endless(self, request: verify_pb2.TokenizeRequest) -> None:
        """Refuses, without tokenizing it, a text that cannot fit whatever its tokens are."""
        most_bytes = self._longest_piece_bytes * self._model.info.context_tokens
        if request.ByteSize() > most_bytes + OVERHEAD_BYTES:
            raise InvalidArgumentError(
                f"the prompt has {request.ByteSize()} bytes, more than the model's context of "
                f"{self._model.info.context_tokens} tokens can hold; shorten it"
            )

    @cached_property
    def _longest_piece_bytes(self) -> int:
        return max(map(len, self._tokenizer().vocabulary.pieces))

    def _tokenizer(self) -> Tokenizer:
        if self._model.tokenizer is None:
            raise InvalidArgumentError(
                f"the model {self._model.info.model_name} has no tokenizer; send token ids"
            )
        return self._model.tokenizer


def _told(session: Session) -> dict[str, Attribute]:
    """What may be told of a session: no tokens."""
    return {
        "session_id": session.opening.session_id,
        "prompt_tokens": len(session.opening.prompt_ids),
        "cached_tokens": session.cached_tokens,
        "emitted_tokens": len(session.tree.committed),
        "rounds": session.round_index,
        "dropped_nodes": session.dropped_nodes,
    }
