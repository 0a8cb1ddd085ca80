"""What both clients tell gRPC about a connection, and the checks of a client's own arguments."""

import os
import re
from collections.abc import Mapping

from outrider.errors import InvalidArgumentError
from outrider.identity import Role
from outrider.request_ids import REQUEST_ID, is_sane
from outrider.wire.tls import Secured, secured_by

DEFAULT_ADDRESS = "localhost:7070"
DEFAULT_TIMEOUT_S = 600.0
MAX_TIMEOUT_S = 7 * 24 * 3600.0
MAX_MESSAGE_BYTES = 16 * 1024 * 1024

# A machine that vanished sends no reset: only an unanswered ping tells. Servers hang up on peers
# that ping too often; once a minute, while a call is open, is within what gRPC puts up with.
CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # Until then gRPC fails calls without trying: attempts are to be real ones.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

_ADDRESS = re.compile(r"(?:[^][:/=\s]+|\[[^][/=\s]+\]):(\d{1,5})", re.ASCII)
_METADATA_KEY = re.compile(r"(?!grpc-)[a-z0-9_.-]+(?<!-bin)")


def checked_address(address: object) -> str:
    """`address`, if it can be one."""
    match = _ADDRESS.fullmatch(address.strip()) if isinstance(address, str) else None
    if match is None or not 1 <= int(match[1]) <= 65535:
        raise InvalidArgumentError(
            f"address is {address!r}; give host:port, the port from 1 to 65535"
        )
    return match[0]


def checked_timeout(timeout_s: float) -> float:
    """`timeout_s`, if a call can have it as its deadline."""
    is_number = isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool)
    if is_number and 0 < timeout_s <= MAX_TIMEOUT_S:
        return float(timeout_s)
    raise InvalidArgumentError(
        f"timeout_s is {timeout_s!r}; give seconds above 0 and up to {MAX_TIMEOUT_S:.0f} (a week)"
    )


def checked_tls(tls: object, credentials: object) -> Secured | None:
    """How calls are secured by the folder `tls`; None where it is ''."""
    if not isinstance(tls, (str, os.PathLike)):
        raise InvalidArgumentError(
            f"tls is a {type(tls).__name__}; give a folder, as a str or path"
        )
    secured = secured_by(tls, Role.ORCHESTRATOR)
    if secured is not None and credentials is not None:
        raise InvalidArgumentError("tls and credentials are given; give one of them")
    return secured


def checked_metadata(metadata: Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    """`metadata` as gRPC takes it, if it can be sent."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise InvalidArgumentError(
            f"metadata is a {type(metadata).__name__}; give a mapping of str to str"
        )
    pairs = tuple((metadata or {}).items())
    for key, value in pairs:
        if not isinstance(key, str) or not _METADATA_KEY.fullmatch(key):
            raise InvalidArgumentError(
                f"metadata key is {key!r}; give lower-case letters, digits, '_', '-' or '.', "
                "without the prefix 'grpc-' or the suffix '-bin'"
            )
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            # The value may be a secret, so it is not repeated.
            raise InvalidArgumentError(f"the value of metadata {key!r} is not printable ASCII text")
        if key == REQUEST_ID and not is_sane(value):
            raise InvalidArgumentError(
                f"metadata {key!r} is {value[:80]!r}; give 1 to 64 letters, digits, '_', '.', ':' "
                "or '-'"
            )
    return pairs
