"""The verify service as its caller sees it: dataclasses in, dataclasses out."""

import asyncio
from collections.abc import Sequence
from functools import partial

import grpc

from outrider.errors import InvalidArgumentError
from outrider.host import HostFacts
from outrider.plans import ReadinessPolicy
from outrider.types import ModelInfo, VerifyOpening
from outrider.v1 import common_pb2, verify_pb2, verify_pb2_grpc
from outrider.vocabulary import Vocabulary
from outrider.wire.channels import wait_connected
from outrider.wire.convert import info_from, verdict_from, verify_opening_to
from outrider.wire.convert_host import told_from
from outrider.wire.convert_plan import policy_to
from outrider.wire.convert_sampling import finish_from
from outrider.wire.draft_client import Opened, RelayedChunk
from outrider.wire.errors import from_rpc_error, readable
from outrider.wire.links import Arrival, Link
from outrider.wire.watched import metadata_of

TEXT_TIMEOUT_S = 60.0


class VerifyStream(Link[verify_pb2.VerifyRequest]):
    """One session at the verifier. Arrivals: Opened, then Verdict."""

    def extend(self, relayed: RelayedChunk) -> None:
        """Passes a draft's chunk on, without encoding it anew."""
        self.send(verify_pb2.VerifyRequest(extend=relayed.message))

    def set_policy(self, policy: ReadinessPolicy) -> None:
        """From now on the session is ready by this policy."""
        self.send(verify_pb2.VerifyRequest(policy=policy_to(policy)))


class VerifyClient:
    """Calls the verify service."""

    def __init__(self, channel: grpc.aio.Channel, address: str) -> None:
        self._stub = verify_pb2_grpc.VerifyServiceStub(channel)
        self._address = address
        self._channel = channel

    async def model_info(self, timeout_s: float) -> ModelInfo:
        """The target's facts; raises a domain error where it does not answer or fit."""
        await wait_connected(self._channel, self._address, timeout_s)
        try:
            response = await self._stub.GetModelInfo(
                verify_pb2.VerifyServiceGetModelInfoRequest(), timeout=timeout_s
            )
        except grpc.RpcError as error:
            raise from_rpc_error(error, address=self._address, timeout_s=timeout_s) from error
        return info_from(readable(response, self._address).model)

    async def diagnose(self, payload: bytes, reply_bytes: int, timeout_s: float) -> HostFacts:
        """What the service runs on; `payload` and as many bytes as wanted measure the line."""
        await wait_connected(self._channel, self._address, timeout_s)
        request = verify_pb2.VerifyServiceDiagnoseRequest(payload=payload, reply_bytes=reply_bytes)
        try:
            response = await self._stub.Diagnose(request, timeout=timeout_s)
        except grpc.RpcError as error:
            raise from_rpc_error(error, address=self._address, timeout_s=timeout_s) from error
        return told_from(readable(response, self._address), reply_bytes, self._address)

    async def vocabulary(self) -> Vocabulary:
        """The bytes of every token."""
        pieces: list[bytes] = []
        control: list[bool] = []
        request = verify_pb2.GetVocabularyRequest()
        try:
            async for part in self._stub.GetVocabulary(request, timeout=TEXT_TIMEOUT_S):
                pieces += readable(part, self._address).pieces
                control += part.control
        except grpc.RpcError as error:
            raise from_rpc_error(error, address=self._address) from error
        return Vocabulary(tuple(pieces), tuple(control))

    async def tokenize(self, prompt: "str | Sequence[tuple[str, str]]") -> tuple[int, ...]:
        """Token ids of raw text, or of (role, content) messages under the chat template."""
        if isinstance(prompt, str):
            request = verify_pb2.TokenizeRequest(text=prompt)
        else:
            messages = [common_pb2.ChatMessage(role=r, content=c) for r, c in prompt]
            request = verify_pb2.TokenizeRequest(chat=common_pb2.Chat(messages=messages))
        try:
            response = await self._stub.Tokenize(request, timeout=TEXT_TIMEOUT_S)
        except grpc.RpcError as error:
            raise from_rpc_error(error, address=self._address) from error
        return tuple(readable(response, self._address).ids)

    def verify(
        self,
        name: str,
        opening: VerifyOpening,
        inbox: "asyncio.Queue[Arrival]",
        traceparent: str = "",
    ) -> VerifyStream:
        """Opens or resumes a session; what comes back goes into `inbox`. `traceparent` names the
        span that asks.
        """

        def decode(response: verify_pb2.VerifyResponse) -> object:
            kind = response.WhichOneof("kind")
            if kind == "opened":
                opened = response.opened
                return Opened(opened.cached_tokens, finish_from(opened.finish_reason))
            if kind == "verdict":
                return verdict_from(response.verdict)
            raise InvalidArgumentError("the verifier sent a message of an unknown kind")

        call = partial(self._stub.Verify, metadata=metadata_of(traceparent))
        stream = VerifyStream(name, self._address, call, decode, inbox)
        stream.send(verify_pb2.VerifyRequest(open=verify_opening_to(opening)))
        return stream
