"""One call of the SDK over its attempts: its id, its deadline, what its failures are told as."""

import time
import uuid
from collections.abc import Sequence

import grpc

from outrider.client.retrying import Attempts
from outrider.errors import OutriderError
from outrider.request_ids import REQUEST_ID
from outrider.wire.errors import from_rpc_error

_LEAST_S = 0.001

Metadata = tuple[tuple[str, str], ...]


class Call:
    """Begins when it is made. Its id, the caller's own where `metadata` has one, is the same for
    every attempt and on every error; the services log answers by it.
    """

    def __init__(
        self, address: str, metadata: Sequence[tuple[str, str]], retries: int, timeout_s: float
    ) -> None:
        named = dict(metadata)
        self.request_id = named.setdefault(REQUEST_ID, uuid.uuid4().hex)
        self.metadata: Metadata = tuple(named.items())
        self.address = address
        self._timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._attempts = Attempts(retries, self._deadline)
        self._made = 1

    def left_s(self) -> float:
        """What the next attempt may take, in seconds; above 0."""
        return max(_LEAST_S, self._deadline - time.monotonic())

    def error(self, rpc_error: grpc.RpcError, *, has_answered: bool = False) -> OutriderError:
        """The domain error behind an attempt that failed."""
        return from_rpc_error(
            rpc_error,
            address=self.address,
            timeout_s=self._timeout_s,
            has_answered=has_answered,
        )

    def wait_s(self, error: OutriderError, arrived: int = 0) -> float | None:
        """How long to wait before the next attempt, after one failed with `arrived` tokens in all;
        None: there is none, and `error` says after how many.
        """
        wait_s = self._attempts.wait_s(error, time.monotonic(), arrived)
        if wait_s is not None:
            self._made += 1
        elif self._made > 1:
            error.message += f" (tried {self._made} times)"
            error.args = (error.message,)
        return wait_s

    def wait_or_raise(self, rpc_error: grpc.RpcError) -> float:
        """How long to wait before the next attempt; raises the error where there is none."""
        error = self.error(rpc_error)
        error.request_id = error.request_id or self.request_id
        wait_s = self.wait_s(error)
        if wait_s is None:
            raise error from None
        return wait_s
