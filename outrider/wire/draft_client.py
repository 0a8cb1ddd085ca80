"""A draft service as its caller sees it: dataclasses in, dataclasses out."""

import asyncio
import time
from dataclasses import dataclass
from functools import partial

import grpc

from outrider.errors import InvalidArgumentError
from outrider.host import HostFacts
from outrider.types import Chunk, DraftCommit, DraftOpening, FinishReason, ModelInfo
from outrider.v1 import common_pb2, draft_pb2, draft_pb2_grpc
from outrider.vocabulary import Vocabulary
from outrider.wire.channels import wait_connected
from outrider.wire.convert import chunk_from, commit_to, draft_opening_to, info_from
from outrider.wire.convert_host import told_from
from outrider.wire.errors import from_rpc_error, readable
from outrider.wire.links import Arrival, Link
from outrider.wire.uploads import parts
from outrider.wire.watched import metadata_of

MAX_REASON_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class Opened:
    """The service holds the session; `cached_tokens` of the prompt needed no computation. Of a
    verifier: `finish_reason` where the emitted tokens end the text already.
    """

    cached_tokens: int
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class RelayedChunk:
    """A draft's chunk, checked, and the message it came in, which travels on as it is; and when it
    came, by the monotonic clock.
    """

    chunk: Chunk
    message: common_pb2.DraftChunk
    heard_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Done:
    """The draft has nothing more to say in this session; `reason` is for the user."""

    reason: str


class DraftStream(Link[draft_pb2.DraftRequest]):
    """One session at a draft. Arrivals: Opened, then RelayedChunk, at most one Done."""

    def commit(self, commit: DraftCommit) -> None:
        """Tells the draft what was emitted, and its plan from now on."""
        self.send(draft_pb2.DraftRequest(commit=commit_to(commit)))

    def branches(self, relayed: RelayedChunk) -> None:
        """Tells the draft what another draft of the session made."""
        self.send(draft_pb2.DraftRequest(branches=relayed.message))


class DraftClient:
    """Calls one draft service."""

    def __init__(self, channel: grpc.aio.Channel, address: str) -> None:
        self._stub = draft_pb2_grpc.DraftServiceStub(channel)
        self._address = address
        self._channel = channel

    async def model_info(self, timeout_s: float) -> ModelInfo:
        """The draft model's facts; raises a domain error where it does not answer or fit."""
        await wait_connected(self._channel, self._address, timeout_s)
        try:
            response = await self._stub.GetModelInfo(
                draft_pb2.DraftServiceGetModelInfoRequest(), timeout=timeout_s
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error, address=self._address, timeout_s=timeout_s) from error
        return info_from(readable(response, self._address).model)

    async def set_vocabulary(self, vocabulary: Vocabulary, timeout_s: float) -> int:
        """Tells the draft a target's vocabulary; returns how many tokens both have.

        Raises a domain error where it does not answer, or cannot work for that target.
        """
        try:
            response = await self._stub.SetVocabulary(parts(vocabulary), timeout=timeout_s)
        except grpc.RpcError as error:
            raise from_rpc_error(error, address=self._address, timeout_s=timeout_s) from error
        return int(readable(response, self._address).shared_tokens)

    async def diagnose(self, payload: bytes, reply_bytes: int, timeout_s: float) -> HostFacts:
        """What the service runs on; `payload` and as many bytes as wanted measure the line."""
        await wait_connected(self._channel, self._address, timeout_s)
        request = draft_pb2.DraftServiceDiagnoseRequest(payload=payload, reply_bytes=reply_bytes)
        try:
            response = await self._stub.Diagnose(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise from_rpc_error(error, address=self._address, timeout_s=timeout_s) from error
        return told_from(readable(response, self._address), reply_bytes, self._address)

    def draft(
        self,
        name: str,
        opening: DraftOpening,
        inbox: "asyncio.Queue[Arrival]",
        traceparent: str = "",
    ) -> DraftStream:
        """Opens a session; what comes back goes into `inbox`. `traceparent` names the span that
        asks.
        """
        is_open = False

        def decode(response: draft_pb2.DraftResponse) -> object:
            nonlocal is_open
            kind = response.WhichOneof("kind")
            if kind == "opened" and not is_open:
                is_open = True
                return Opened(response.opened.cached_tokens)
            if kind == "chunk" and is_open:
                chunk = chunk_from(response.chunk, opening.vocab_size, opening.draft_index)
                return RelayedChunk(chunk, response.chunk, time.monotonic())
            if kind == "done" and is_open:
                return Done(response.done.reason[:MAX_REASON_CHARACTERS])
            raise InvalidArgumentError(
                f"it sent {kind or 'a message of an unknown kind'} where "
                f"{'a chunk' if is_open else 'opened'} has to come"
            )

        call = partial(self._stub.Draft, metadata=metadata_of(traceparent))
        stream = DraftStream(name, self._address, call, decode, inbox)
        stream.send(draft_pb2.DraftRequest(open=draft_opening_to(opening)))
        return stream
