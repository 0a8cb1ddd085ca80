"""What the answers of the two clients share: everything but waiting.

Knows how an answer is folded, and how one whose stream broke goes on; reads no stream.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Protocol

import grpc

from outrider.client.answer import Started, Token
from outrider.client.call import Call
from outrider.client.fold import Fold
from outrider.client.stats import Stats
from outrider.errors import OutriderError, RequestCancelledError, UnavailableError
from outrider.v1 import orchestrator_pb2
from outrider.wire.convert_sampling import mode_to


def closed_meanwhile() -> RequestCancelledError:
    """Of a call that ends with its client."""
    return RequestCancelledError("the client was closed during the call")


class Cancellable(Protocol):
    """What a running call of either kind is to `BaseGeneration`."""

    def cancel(self) -> bool:
        """Ends the call, on the server too."""


class Closeable(Protocol):
    """What a client of either kind is to it."""

    is_closed: bool

    def require_open(self) -> None:
        """Raises InvalidArgumentError where it is closed."""


class BaseGeneration:
    """One answer while it arrives. Subclasses say how its messages are waited for."""

    def __init__(
        self, client: Closeable, call: Call, request: orchestrator_pb2.GenerateRequest
    ) -> None:
        # Held because a channel that is dropped takes its calls with it.
        self._client = client
        self._call = call
        self._request = request
        self._fold = Fold(call.request_id)
        self._stream: Cancellable | None = None
        self._begins_at = 0.0

    @property
    def request_id(self) -> str:
        """Names the request in logs and errors, of every attempt."""
        return self._call.request_id

    @property
    def started(self) -> Started | None:
        """Seed, drafts and notices, once the first message has arrived."""
        return self._fold.started

    @property
    def text(self) -> str:
        """The text of the tokens yielded so far; after the last one the whole text."""
        return self._fold.text

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens yielded so far."""
        return self._fold.tokens

    @property
    def stats(self) -> Stats | None:
        """Counts and times, once the answer is complete; None before."""
        return self._fold.result.stats if self._fold.result else None

    def cancel(self) -> None:
        """Gives the answer up, here and on the server. Without effect on a complete one."""
        self._fold.cancel()
        self._hang_up()

    def _push(self, message: orchestrator_pb2.GenerateResponse) -> None:
        self._fold.push(message)
        if self._fold.is_over:
            self._hang_up()

    def _fail(self, rpc_error: grpc.RpcError) -> None:
        has_answered = self._fold.started is not None
        self._break(self._call.error(rpc_error, has_answered=has_answered))

    def _end(self) -> None:
        """The peer closed the stream as if all were well."""
        if self._fold.result is None:
            self._break(UnavailableError("the answer stopped without its last message"))
        else:
            self._fold.end()

    def _break(self, error: OutriderError) -> None:
        """The stream ended early: another one follows after a while, or the error stands."""
        fold = self._fold
        is_wanted = not fold.is_over and fold.result is None
        wait_s = self._call.wait_s(error, fold.arrived) if is_wanted else None
        if wait_s is None:
            fold.fail(error)
            return
        self._hang_up()
        self._stream = None
        self._begins_at = time.monotonic() + wait_s
        fold.begin_again()

    def _pause_s(self) -> float:
        """How long the next stream is still waited with."""
        return max(0.0, self._begins_at - time.monotonic())

    def _may_begin(self) -> bool:
        """Whether the next stream is still wanted, after the wait for it."""
        if self._client.is_closed:
            self._fold.fail(closed_meanwhile())
        return not self._fold.is_over

    def _next_request(self) -> orchestrator_pb2.GenerateRequest:
        """What the next stream is asked for: what is missing of the answer that was begun."""
        request = orchestrator_pb2.GenerateRequest()
        request.CopyFrom(self._request)
        started = self._fold.started
        if started is not None:
            request.sampling.seed = started.seed
            request.model = request.model or started.model
            request.delivered_ids.extend(self._fold.ids)
            if started.mode is not None:
                request.sampling.mode = mode_to(started.mode)
        return request

    def _hang_up(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    def __del__(self) -> None:
        # Nobody is left to read the answer. The event loop of the call may be gone as well.
        with suppress(AttributeError, RuntimeError):
            self._hang_up()
