"""`Client`: the SDK for programs that wait."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

import grpc

from outrider.client.answer import Result, Started, Token
from outrider.client.apart import Outcome, Stream, Worker
from outrider.client.base import CHOICES_AT_ONCE, BaseClient
from outrider.client.call import Call
from outrider.client.channel import DEFAULT_ADDRESS, DEFAULT_TIMEOUT_S
from outrider.client.cluster import Cluster, cluster_from_proto, target_from_proto
from outrider.client.generation import BaseGeneration, closed_meanwhile
from outrider.client.prompt import Prompt
from outrider.client.request import GenerateOptions
from outrider.client.retrying import DEFAULT_RETRIES
from outrider.diagnosis import Diagnosis
from outrider.types import ModelInfo
from outrider.v1 import orchestrator_pb2
from outrider.v1.orchestrator_pb2_grpc import OrchestratorServiceStub
from outrider.wire.convert_host import diagnosis_from

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class Generation(BaseGeneration):
    """One answer while it arrives: an iterator of tokens. Leaving its `with` block cancels it."""

    _stream: Stream[orchestrator_pb2.GenerateResponse] | None

    def __init__(
        self, client: Client, call: Call, request: orchestrator_pb2.GenerateRequest
    ) -> None:
        super().__init__(client, call, request)
        self._start = client._start
        self._pause = client._pause
        self._given_up: SimpleQueue[None] = SimpleQueue()
        self._stream = self._start(call, request)

    def wait_started(self) -> Started:
        """What is known before the first token; waits for it."""
        while (started := self._fold.started) is None:
            self._fold.raise_if_failed()
            self._receive()
        return started

    def result(self) -> Result:
        """The whole answer; waits for its end. Tokens already yielded are part of it."""
        for _ in self:
            pass
        return self._fold.whole()

    def cancel(self) -> None:
        """Gives the answer up, here and on the server. Without effect on a complete one."""
        super().cancel()
        self._given_up.put(None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Token:
        while (token := self._fold.pop()) is None:
            if self._fold.is_over:
                raise StopIteration
            self._receive()
        return token

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()

    def _receive(self) -> None:
        try:
            if self._stream is None:
                self._pause(self._pause_s(), self._given_up)
                if not self._may_begin():
                    return
                self._stream = self._start(self._call, self._next_request())
                if self._fold.is_over:  # another thread gave up, and found no stream yet
                    self._hang_up()
                    return
            self._push(next(self._stream))
        except StopIteration:
            self._end()
        except grpc.RpcError as error:
            self._fail(error)
        except ValueError:
            # So gRPC refuses what begins on a channel that another thread has just closed.
            self._client.require_open()
            raise


class Client(BaseClient[Generation]):
    """Talks to an orchestrator.

    ```python
    with Client("localhost:7070") as client:
        with client.generate("The sea is", max_tokens=64, seed=7) as generation:
            for token in generation:
                sys.stdout.write(token.text)
        generation.result().stats.tokens_per_pass
    ```

    Every error it raises is an `outrider.OutriderError`. It may be shared by threads. Ctrl-C may
    interrupt any of its calls: it stays whole, and can be closed or used on.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        metadata: Mapping[str, str] | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        retries: int = DEFAULT_RETRIES,
        tls: str | os.PathLike[str] = "",
    ) -> None:
        super().__init__(
            address,
            timeout_s=timeout_s,
            metadata=metadata,
            credentials=credentials,
            retries=retries,
            tls=tls,
        )
        self._worker = Worker()
        weakref.finalize(self, self._worker.end)
        self._channel = self._worker.ask(
            partial(_open_channel, self.address, self._credentials, self._channel_options)
        )
        self._stub = self._worker.ask(partial(OrchestratorServiceStub, self._channel))

    def generate_choices(
        self, prompt: Prompt, n: int, **options: Unpack[GenerateOptions]
    ) -> tuple[Result, ...]:
        """`n` independent answers to one prompt, up to 8 computed at once; waits for all of them.

        They share a seed, drawn here if `options` (those of `generate`) have none: answer i is
        `generate` with that seed and `choice_index=i`, exactly under "coupled" and "match"; under
        "rejection" and "block" its text also depends on what the drafts draw. If one fails, its
        error is raised and the others are given up.
        """
        starts = self._choices(prompt, n, options)
        started: list[Generation] = []
        is_over: list[bool] = []
        arrivals: SimpleQueue[tuple[int, Outcome[Result]]] = SimpleQueue()

        def answer(index: int) -> Result:
            generation = starts[index]()
            started.append(generation)
            if is_over:
                # What is started after the end is not in the list that was given up then.
                generation.cancel()
            return generation.result()

        def begin(index: int) -> None:
            self._worker.apart(
                partial(answer, index), lambda outcome: arrivals.put((index, outcome))
            )

        results: dict[int, Result] = {}
        waiting = iter(range(len(starts)))
        try:
            for index in islice(waiting, CHOICES_AT_ONCE):
                begin(index)
            while len(results) < len(starts):
                index, outcome = arrivals.get()
                results[index] = outcome.get()
                for following in islice(waiting, 1):
                    begin(following)
            return tuple(results[index] for index in range(len(starts)))
        finally:
            is_over.append(True)
            for generation in tuple(started):
                generation.cancel()

    def get_model_info(self, *, timeout_s: float | None = None) -> ModelInfo:
        """The target model that answers."""
        request = orchestrator_pb2.OrchestratorServiceGetModelInfoRequest()
        return target_from_proto(self._ask(self._stub.GetModelInfo, request, timeout_s))

    def get_cluster(self, *, timeout_s: float | None = None) -> Cluster:
        """The verifier and the drafts, and how they are."""
        request = orchestrator_pb2.GetClusterRequest()
        return cluster_from_proto(self._ask(self._stub.GetCluster, request, timeout_s))

    def diagnose(self, *, with_bandwidth: bool = True, timeout_s: float | None = None) -> Diagnosis:
        """What every service runs on, and the lines between them, measured now; takes seconds."""
        request = orchestrator_pb2.DiagnoseRequest(measure_bandwidth=with_bandwidth)
        return diagnosis_from(self._ask(self._stub.Diagnose, request, timeout_s))

    def close(self) -> None:
        """Ends running calls and closes the connection."""
        self.is_closed = True
        for woken in tuple(self._pauses):
            woken.put(None)
        self._worker.ask(self._channel.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _pause(self, wait_s: float, woken: SimpleQueue[None]) -> None:
        """Waits between two attempts of a call; not on when there is something in `woken`, nor when
        the client is closed.
        """
        self._pauses.add(woken)
        try:
            if not self.is_closed:
                with suppress(Empty):
                    woken.get(timeout=wait_s)
        finally:
            self._pauses.discard(woken)

    def _start(
        self, call: Call, request: orchestrator_pb2.GenerateRequest
    ) -> Stream[orchestrator_pb2.GenerateResponse]:
        """One attempt of a call of `generate`; used by what that returns."""
        self.require_open()
        generate = self._stub.Generate
        begin = partial(generate, request, timeout=call.left_s(), metadata=call.metadata)
        return Stream(self._worker, begin)

    def _send(self, call: Call, request: orchestrator_pb2.GenerateRequest) -> Generation:
        return Generation(self, call, request)

    def _ask(
        self,
        method: grpc.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float | None,
    ) -> ResponseT:
        call = self._call(timeout_s)
        while True:
            self.require_open()
            attempt = partial(method, request, timeout=call.left_s(), metadata=call.metadata)
            try:
                return self._worker.ask_apart(attempt)
            except grpc.RpcError as error:
                self._pause(call.wait_or_raise(error), SimpleQueue())
                if self.is_closed:
                    raise closed_meanwhile() from None
            except ValueError:
                self.require_open()
                raise


def _open_channel(
    address: str,
    credentials: grpc.ChannelCredentials | None,
    options: Sequence[tuple[str, object]],
) -> grpc.Channel:
    if credentials is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, credentials, options)
