"""gRPC in, chunks out: convert, call, convert."""

import asyncio
from collections.abc import AsyncIterator
from itertools import accumulate
from typing import Any

import grpc

from draft_service.scheduler import Scheduler, Seat
from outrider.errors import CapacityError, DeadlineError, InvalidArgumentError, OutriderError
from outrider.host import ModelLoad
from outrider.telemetry.logs import get_logger
from outrider.telemetry.traces import Attribute
from outrider.types import Chunk
from outrider.v1 import draft_pb2, draft_pb2_grpc
from outrider.vocabulary import Vocabulary
from outrider.wire.calls import first_message, internal_error
from outrider.wire.convert import (
    MAX_CHUNK_NODES,
    branches_from,
    chunk_to,
    commit_from,
    draft_opening_from,
    info_to,
)
from outrider.wire.convert_host import host_to
from outrider.wire.diagnosing import Teller
from outrider.wire.uploads import UPLOAD_S, collect
from outrider.wire.watched import watched

MAX_UPLOADS = 4

Context = grpc.aio.ServicerContext[Any, Any]


class DraftServicer(draft_pb2_grpc.DraftServiceServicer):
    """Serves one draft model."""

    def __init__(
        self, scheduler: Scheduler, max_sessions: int, load: ModelLoad | None = None
    ) -> None:
        self._scheduler = scheduler
        self._max_sessions = max_sessions
        self._uploads = 0
        self._teller = Teller(load or ModelLoad(max_sessions=max_sessions))

    async def GetModelInfo(
        self, request: draft_pb2.DraftServiceGetModelInfoRequest, context: Context
    ) -> draft_pb2.DraftServiceGetModelInfoResponse:
        """Which model the service runs."""
        info = self._scheduler.drafter.vocabularies.info
        return draft_pb2.DraftServiceGetModelInfoResponse(model=info_to(info, self._max_sessions))

    async def Diagnose(
        self, request: draft_pb2.DraftServiceDiagnoseRequest, context: Context
    ) -> draft_pb2.DraftServiceDiagnoseResponse:
        """What the service runs on."""
        host, payload = await self._teller.tell(len(request.payload), request.reply_bytes)
        return draft_pb2.DraftServiceDiagnoseResponse(host=host_to(host), payload=payload)

    async def SetVocabulary(
        self, request_iterator: AsyncIterator[draft_pb2.SetVocabularyRequest], context: Context
    ) -> draft_pb2.SetVocabularyResponse:
        """Learns a target's vocabulary, so that it can draft for it."""
        if self._uploads >= MAX_UPLOADS:
            raise CapacityError(
                f"{MAX_UPLOADS} vocabularies are being sent already; try again later",
                retry_after_s=1.0,
            )
        self._uploads += 1
        vocabularies = self._scheduler.drafter.vocabularies
        job = None
        try:
            name, vocabulary = await self._collected(request_iterator)
            job = self._scheduler.slow.start(lambda: vocabularies.read(name, vocabulary))
            target = await job.result()
        finally:
            if job is None:
                self._leave()
            else:
                job.when_over(self._leave)
        shared = vocabularies.keep(name, target)
        get_logger().info("vocabulary_known", tokenizer_hash=name[:12], shared_tokens=shared)
        return draft_pb2.SetVocabularyResponse(shared_tokens=shared)

    async def _collected(
        self, requests: AsyncIterator[draft_pb2.SetVocabularyRequest]
    ) -> tuple[str, Vocabulary]:
        """The upload, if it comes in time."""
        # Not `wait_for`: before Python 3.12 it swallows a cancellation that comes with the result.
        upload = asyncio.ensure_future(collect(requests))
        try:
            await asyncio.wait({upload}, timeout=UPLOAD_S)
            if not upload.done():
                raise DeadlineError(
                    f"the vocabulary did not arrive within {UPLOAD_S:.0f} s; send it faster"
                )
            return upload.result()
        finally:
            upload.cancel()

    def _leave(self) -> None:
        self._uploads -= 1

    async def Draft(
        self, request_iterator: AsyncIterator[draft_pb2.DraftRequest], context: Context
    ) -> AsyncIterator[draft_pb2.DraftResponse]:
        """One session, from open to half-close."""
        with watched("draft", context, self._scheduler.metrics) as span:
            first = await first_message(request_iterator)
            if first is None or first.WhichOneof("kind") != "open":
                raise InvalidArgumentError("a draft stream starts with open; send it first")
            seat = await self._scheduler.open(draft_opening_from(first.open))
            reader = asyncio.create_task(self._read(request_iterator, seat))
            try:
                opened = draft_pb2.DraftOpened(cached_tokens=seat.session.cached_tokens)
                yield draft_pb2.DraftResponse(opened=opened)
                while True:
                    if seat.chunks:
                        chunks = self._scheduler.take(seat, _fitting(seat.chunks))
                        chunk = seat.dated(_merged(chunks))
                        yield draft_pb2.DraftResponse(chunk=chunk_to(chunk))
                        continue
                    if seat.error is not None:
                        raise seat.error
                    if seat.done is not None:
                        done = draft_pb2.DraftDone(reason=seat.done.reason)
                        yield draft_pb2.DraftResponse(done=done)
                        return
                    if reader.done():
                        return
                    seat.changed.clear()
                    await seat.changed.wait()
            finally:
                reader.cancel()
                span.note(**_told(seat))
                get_logger().info("session_ended", **_told(seat))
                await self._scheduler.close(seat)

    async def _read(self, requests: AsyncIterator[draft_pb2.DraftRequest], seat: Seat) -> None:
        """Hands commits on until the caller half-closes or sends something wrong."""
        try:
            async for request in requests:
                kind = request.WhichOneof("kind")
                if kind == "commit":
                    self._scheduler.commit(seat, commit_from(request.commit))
                elif kind == "branches":
                    opening = seat.session.opening
                    self._scheduler.adopt(
                        seat,
                        branches_from(request.branches, opening.vocab_size, opening.draft_index),
                    )
                else:
                    raise InvalidArgumentError(
                        f"got {kind or 'an empty message'} in an open session; send commit or "
                        "branches"
                    )
        except OutriderError as error:
            seat.fail(error)
        except grpc.aio.AioRpcError:
            return
        except Exception as error:
            seat.fail(internal_error(error, "read"))
        finally:
            seat.changed.set()


def _told(seat: Seat) -> dict[str, Attribute]:
    """What may be told of a session: no tokens."""
    session = seat.session
    return {
        "session_id": session.opening.session_id,
        "draft_index": session.opening.draft_index,
        "prompt_tokens": len(session.opening.prompt_ids),
        "cached_tokens": session.cached_tokens,
        "emitted_tokens": len(session.tree.committed),
        "made_nodes": session.next_counter,
    }


def _fitting(chunks: list[Chunk]) -> int:
    """How many chunks make one message that its reader takes, at least one."""
    nodes = accumulate(len(chunk.nodes) for chunk in chunks)
    return max(1, sum(1 for count in nodes if count <= MAX_CHUNK_NODES))


def _merged(chunks: list[Chunk]) -> Chunk:
    """Chunks that waited for the wire travel as one message."""
    if len(chunks) == 1:
        return chunks[0]
    return Chunk(
        tuple(node for chunk in chunks for node in chunk.nodes),
        tuple(row for chunk in chunks for row in chunk.rows),
        sum(chunk.step_us for chunk in chunks) // len(chunks),
    )
