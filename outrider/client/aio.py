"""`AsyncClient`: the SDK for programs on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import grpc

from outrider.client.answer import Result, Started, Token
from outrider.client.base import CHOICES_AT_ONCE, BaseClient
from outrider.client.call import Call
from outrider.client.cluster import Cluster, cluster_from_proto, target_from_proto
from outrider.client.generation import BaseGeneration, closed_meanwhile
from outrider.client.prompt import Prompt
from outrider.client.request import GenerateOptions
from outrider.diagnosis import Diagnosis
from outrider.errors import ProtocolMismatchError
from outrider.types import ModelInfo
from outrider.v1 import orchestrator_pb2
from outrider.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from outrider.wire.convert_host import diagnosis_from
from outrider.wire.errors import readable

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from outrider.v1.orchestrator_pb2_grpc import OrchestratorServiceAsyncStub

    AsyncStream = grpc.aio.UnaryStreamCall[
        orchestrator_pb2.GenerateRequest, orchestrator_pb2.GenerateResponse
    ]

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class AsyncGeneration(BaseGeneration):
    """One answer while it arrives: an async iterator of tokens.

    Leaving its `async with` block cancels it, and so does cancelling the task that waits for it.
    """

    def __init__(
        self, client: AsyncClient, call: Call, request: orchestrator_pb2.GenerateRequest
    ) -> None:
        super().__init__(client, call, request)
        self._start = client._start
        self._pause = client._pause
        self._given_up = asyncio.Event()
        self._begin(request)

    async def wait_started(self) -> Started:
        """What is known before the first token; waits for it."""
        while (started := self._fold.started) is None:
            self._fold.raise_if_failed()
            await self._receive()
        return started

    async def result(self) -> Result:
        """The whole answer; waits for its end. Tokens already yielded are part of it."""
        async for _ in self:
            pass
        return self._fold.whole()

    def cancel(self) -> None:
        """Gives the answer up, here and on the server. Without effect on a complete one."""
        super().cancel()
        self._given_up.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Token:
        while (token := self._fold.pop()) is None:
            if self._fold.is_over:
                raise StopAsyncIteration
            await self._receive()
        return token

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    async def _receive(self) -> None:
        try:
            if self._stream is None:
                await self._pause(self._pause_s(), self._given_up)
                if not self._may_begin():
                    return
                self._begin(self._next_request())
            self._push(readable(await anext(self._messages), self._call.address))
        except StopAsyncIteration:
            self._end()
        except ProtocolMismatchError as error:
            self._fold.fail(error)
            self._hang_up()
        except grpc.RpcError as error:
            self._fail(error)
        except asyncio.CancelledError:
            # gRPC raises it not only where this task is cancelled, but also for a call that
            # `cancel` or `close` ended, perhaps from another task: that is an error of the call.
            is_ours = self._fold.is_cancelled or self._client.is_closed
            self.cancel()
            if not is_ours:
                raise

    def _begin(self, request: orchestrator_pb2.GenerateRequest) -> None:
        self._stream = self._start(self._call, request)
        self._messages = aiter(self._stream)


class AsyncClient(BaseClient[AsyncGeneration]):
    """Talks to an orchestrator from an event loop.

    ```python
    async with AsyncClient("localhost:7070") as client:
        async with client.generate("The sea is", max_tokens=64, seed=7) as generation:
            async for token in generation:
                sys.stdout.write(token.text)
        (await generation.result()).stats.tokens_per_pass
    ```

    Every error it raises is an `outrider.OutriderError`. It belongs to the event loop of its first
    call.
    """

    _channel: grpc.aio.Channel | None = None

    async def generate_choices(
        self, prompt: Prompt, n: int, **options: Unpack[GenerateOptions]
    ) -> tuple[Result, ...]:
        """`n` independent answers to one prompt, up to 8 computed at once; waits for all of them.

        They share a seed, drawn here if `options` (those of `generate`) have none: answer i is
        `generate` with that seed and `choice_index=i`, exactly under "coupled" and "match"; under
        "rejection" and "block" its text also depends on what the drafts draw. If one fails, its
        error is raised and the others are given up.
        """
        free = asyncio.Semaphore(CHOICES_AT_ONCE)

        async def answer(start: Callable[[], AsyncGeneration]) -> Result:
            async with free, start() as generation:
                return await generation.result()

        starts = self._choices(prompt, n, options)
        reading = [asyncio.ensure_future(answer(start)) for start in starts]
        try:
            return tuple(await asyncio.gather(*reading))
        finally:
            for task in reading:
                task.cancel()
            # Their errors, if there are more than the one that is raised, are of no use.
            await asyncio.gather(*reading, return_exceptions=True)

    async def get_model_info(self, *, timeout_s: float | None = None) -> ModelInfo:
        """The target model that answers."""
        request = orchestrator_pb2.OrchestratorServiceGetModelInfoRequest()
        return target_from_proto(await self._ask(self._stub().GetModelInfo, request, timeout_s))

    async def get_cluster(self, *, timeout_s: float | None = None) -> Cluster:
        """The verifier and the drafts, and how they are."""
        request = orchestrator_pb2.GetClusterRequest()
        return cluster_from_proto(await self._ask(self._stub().GetCluster, request, timeout_s))

    async def diagnose(
        self, *, with_bandwidth: bool = True, timeout_s: float | None = None
    ) -> Diagnosis:
        """What every service runs on, and the lines between them, measured now; takes seconds."""
        request = orchestrator_pb2.DiagnoseRequest(measure_bandwidth=with_bandwidth)
        return diagnosis_from(await self._ask(self._stub().Diagnose, request, timeout_s))

    async def close(self) -> None:
        """Ends running calls and closes the connection."""
        self.is_closed = True
        for woken in tuple(self._pauses):
            woken.set()
        if self._channel is not None:
            await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _stub(self) -> OrchestratorServiceAsyncStub:
        self.require_open()
        if self._channel is None:
            # A channel binds to the running event loop, and there may be none in the constructor.
            asyncio.get_running_loop()
            if self._credentials is None:
                self._channel = grpc.aio.insecure_channel(self.address, self._channel_options)
            else:
                self._channel = grpc.aio.secure_channel(
                    self.address, self._credentials, self._channel_options
                )
        return OrchestratorServiceStub(self._channel)

    async def _pause(self, wait_s: float, woken: asyncio.Event) -> None:
        """Waits between two attempts of a call; not on when `woken` is set, which it is when the
        client is closed.
        """
        self._pauses.add(woken)
        # Not `wait_for`: before Python 3.12 it swallows a cancellation that comes with the event.
        waiting = asyncio.ensure_future(woken.wait())
        try:
            if not self.is_closed:
                await asyncio.wait({waiting}, timeout=wait_s)
        finally:
            waiting.cancel()
            self._pauses.discard(woken)

    def _start(self, call: Call, request: orchestrator_pb2.GenerateRequest) -> AsyncStream:
        """One attempt of a call of `generate`; used by what that returns."""
        return self._stub().Generate(request, timeout=call.left_s(), metadata=call.metadata)

    def _send(self, call: Call, request: orchestrator_pb2.GenerateRequest) -> AsyncGeneration:
        return AsyncGeneration(self, call, request)

    async def _ask(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float | None,
    ) -> ResponseT:
        call = self._call(timeout_s)
        try:
            self.require_open()
            while True:
                try:
                    answer = await method(request, timeout=call.left_s(), metadata=call.metadata)
                    return readable(answer, self.address)
                except grpc.RpcError as error:
                    wait_s = call.wait_or_raise(error)
                await self._pause(wait_s, asyncio.Event())
                if self.is_closed:
                    raise closed_meanwhile()
        except asyncio.CancelledError:
            if self.is_closed:
                raise closed_meanwhile() from None
            raise
