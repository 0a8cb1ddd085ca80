"""Lossless speculative decoding across machines.

Importing this loads no gRPC; the client is loaded when it is first asked for.
"""

from typing import TYPE_CHECKING

from outrider.errors import (
    AbortedError,
    CapacityError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotAllowedError,
    NotFoundError,
    OutriderError,
    ProtocolMismatchError,
    RequestCancelledError,
    StateMismatchError,
    TokenizerMismatchError,
    UnavailableError,
)

if TYPE_CHECKING:
    from outrider.client import (
        AsyncClient,
        AsyncGeneration,
        Client,
        Generation,
        Result,
        Stats,
        Token,
    )
else:
    _CLIENT_NAMES = (
        "AsyncClient",
        "AsyncGeneration",
        "Client",
        "Generation",
        "Result",
        "Stats",
        "Token",
    )

    def __getattr__(name):
        if name not in _CLIENT_NAMES:
            raise AttributeError(f"module 'outrider' has no attribute '{name}'")
        import outrider.client

        value = getattr(outrider.client, name)
        globals()[name] = value
        return value


__all__ = [
    "AbortedError",
    "AsyncClient",
    "AsyncGeneration",
    "CapacityError",
    "Client",
    "DeadlineError",
    "Generation",
    "InternalError",
    "InvalidArgumentError",
    "NotAllowedError",
    "NotFoundError",
    "OutriderError",
    "ProtocolMismatchError",
    "RequestCancelledError",
    "Result",
    "StateMismatchError",
    "Stats",
    "Token",
    "TokenizerMismatchError",
    "UnavailableError",
]
