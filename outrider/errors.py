"""The domain errors of Outrider. They know no gRPC; `outrider.wire.errors` maps them to status
codes and back.
"""

from collections.abc import Mapping


class OutriderError(Exception):
    """Root of every error that Outrider raises on purpose.

    The message says what was got, what was wanted and what to do. `request_id` names the request in
    logs; `retry_after_s` is set where trying again later can help.
    """

    def __init__(
        self,
        message: str,
        *,
        request_id: str = "",
        retry_after_s: float | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        self.metadata: dict[str, str] = dict(metadata or {})

    def __reduce__(self) -> tuple[object, ...]:
        state = (self.request_id, self.retry_after_s, self.metadata)
        return (_rebuild, (type(self), self.message, *state))


def _rebuild(
    kind: type[OutriderError],
    message: str,
    request_id: str,
    retry_after_s: float | None,
    metadata: dict[str, str],
) -> OutriderError:
    return kind(message, request_id=request_id, retry_after_s=retry_after_s, metadata=metadata)


class InvalidArgumentError(OutriderError):
    """The request can never work as it is."""


def require(condition: bool, message: str) -> None:
    """Raises InvalidArgumentError with the message unless the condition holds."""
    if not condition:
        raise InvalidArgumentError(message)


class NotFoundError(OutriderError):
    """The named thing (model, session, file) does not exist."""


class StateMismatchError(OutriderError):
    """The peer is in another state than the call assumes."""


class TokenizerMismatchError(StateMismatchError):
    """Draft and target do not have the same tokenizer."""


class ProtocolMismatchError(StateMismatchError):
    """The peer speaks another protocol version."""


class CapacityError(OutriderError):
    """A limit (sessions, KV cache) is reached; later it may work."""


class UnavailableError(OutriderError):
    """The service cannot be reached, is loading or is draining."""


class DeadlineError(OutriderError):
    """It took longer than the caller or the service allows."""


class AbortedError(OutriderError):
    """The call was overtaken by another one."""


class NotAllowedError(OutriderError):
    """The caller is known, and may not do that."""


class RequestCancelledError(OutriderError):
    """The caller gave up."""


class InternalError(OutriderError):
    """A bug. The message carries an error id that the service's log explains."""
