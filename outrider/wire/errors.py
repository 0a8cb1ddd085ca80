"""The one table between domain errors and gRPC statuses, read by every servicer and every caller.

Knows gRPC and `google.rpc`; knows nothing of models, settings or any particular service.
"""

import logging
import math
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

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

DOMAIN = "outrider.dev"
"""`google.rpc.ErrorInfo.domain` of every error of ours; reasons of another domain are not read."""

ERROR_ID_KEY = "error_id"
"""Metadata key under which an `InternalError` names its line in the service's log."""

# A status travels in HTTP/2 headers, of which gRPC refuses more than 8 KiB. The message is in there
# twice, once percent-encoded (up to three bytes for one): these limits keep the sum below that.
_MESSAGE_BYTES = 1024
_METADATA_BYTES = 1024
_REQUEST_ID_BYTES = 128

M = TypeVar("M")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Row:
    """A class of errors, its status code, and the reason that tells it from others of that code."""

    error: type[OutriderError]
    code: grpc.StatusCode
    reason: str


TABLE = (
    Row(InvalidArgumentError, grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT"),
    Row(NotFoundError, grpc.StatusCode.NOT_FOUND, "NOT_FOUND"),
    Row(StateMismatchError, grpc.StatusCode.FAILED_PRECONDITION, "STATE_MISMATCH"),
    Row(TokenizerMismatchError, grpc.StatusCode.FAILED_PRECONDITION, "TOKENIZER_MISMATCH"),
    Row(ProtocolMismatchError, grpc.StatusCode.FAILED_PRECONDITION, "PROTOCOL_MISMATCH"),
    Row(CapacityError, grpc.StatusCode.RESOURCE_EXHAUSTED, "CAPACITY"),
    Row(UnavailableError, grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE"),
    Row(DeadlineError, grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE"),
    Row(AbortedError, grpc.StatusCode.ABORTED, "ABORTED"),
    Row(NotAllowedError, grpc.StatusCode.PERMISSION_DENIED, "NOT_ALLOWED"),
    Row(RequestCancelledError, grpc.StatusCode.CANCELLED, "CANCELLED"),
    Row(InternalError, grpc.StatusCode.INTERNAL, "INTERNAL"),
)

_BY_ERROR = {row.error: row for row in TABLE}
_BY_REASON = {row.reason: row.error for row in TABLE}

# Codes that no error of ours has, but that gRPC itself, a proxy or a foreign server may send.
_BY_CODE: dict[grpc.StatusCode, type[OutriderError]] = {
    grpc.StatusCode.UNIMPLEMENTED: ProtocolMismatchError,
    grpc.StatusCode.UNAUTHENTICATED: InvalidArgumentError,
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgumentError,
    grpc.StatusCode.ALREADY_EXISTS: StateMismatchError,
    # Reversed, so that of several rows with one code the first, most general one stays.
    **{row.code: row.error for row in reversed(TABLE)},
}


def to_status(error: Exception) -> grpc.Status:
    """The status that tells a caller about `error`: a code, a message and `google.rpc` details.

    An error that is not a domain error becomes INTERNAL: its text goes to the log only, under the
    id that is sent.
    """
    shown = _presentable(error)
    row = _row(shown)
    message = _clipped(shown.message, _MESSAGE_BYTES)
    status = status_pb2.Status(code=_number(row.code), message=message)
    metadata = dict(_clipped_items(shown.metadata))
    info = error_details_pb2.ErrorInfo(reason=row.reason, domain=DOMAIN, metadata=metadata)
    status.details.add().Pack(info)
    if shown.request_id:
        request_id = _clipped(shown.request_id, _REQUEST_ID_BYTES)
        status.details.add().Pack(error_details_pb2.RequestInfo(request_id=request_id))
    retry_after_s = shown.retry_after_s
    if retry_after_s is not None and math.isfinite(retry_after_s):
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(max(0, round(retry_after_s * 1000)))
        status.details.add().Pack(retry)
    converted: grpc.Status = rpc_status.to_status(status)
    return converted


async def abort(context: grpc.aio.ServicerContext[Any, Any], error: Exception) -> NoReturn:
    """Ends the call of `context` with the status of `error`."""
    status = to_status(error)
    await context.abort(status.code, status.details, status.trailing_metadata)


_BROKEN_WRITE = "Internal error from Core"
"""What `grpc.aio` puts over the status of a stream that ends while something is written to it. The
status is lost; whoever asks again learns it."""


_TLS_SIGNS = (
    (
        "WRONG_VERSION_NUMBER",
        "does not speak TLS and this side does; start it with --tls, or leave TLS out here",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "shows a certificate that is not accepted here; outrider certs show tells why",
    ),
    (
        "Hostname Verification Check failed",
        "shows a certificate of another role; correct the address, or the folder of its --tls",
    ),
    (
        "Socket closed",
        "hangs up at once; it wants TLS (--tls, in Python tls=), or does not accept the "
        "certificate that it is shown",
    ),
)
"""What gRPC says of a connection that could not be made, and what that means."""


def from_rpc_error(
    rpc_error: grpc.RpcError,
    *,
    address: str = "",
    timeout_s: float | None = None,
    has_answered: bool = False,
) -> OutriderError:
    """The domain error behind a failed call, also where gRPC or the peer gave nothing but a code.

    `address`, `timeout_s` and `has_answered` (a message of this call had arrived) word the message
    where the peer sent none. Use: `raise from_rpc_error(error, address=address) from error`.
    """
    if not isinstance(rpc_error, (grpc.Call, grpc.aio.AioRpcError)):
        return InternalError("the call failed without a status")
    code = rpc_error.code()
    kind = _BY_CODE.get(code, InternalError)
    details = _details(rpc_error)
    if details is None and rpc_error.details() == _BROKEN_WRITE:
        return UnavailableError(f"the connection to {address or 'the peer'} broke")
    if details is None:
        return kind(_plain(code, rpc_error.details() or "", address, timeout_s, has_answered))
    if details.info.domain == DOMAIN:
        kind = _BY_REASON.get(details.info.reason, kind)
    return kind(
        details.message or f"{address or 'the peer'} sent {code.name} and no message",
        request_id=details.request.request_id,
        retry_after_s=details.retry_after_s,
        metadata=details.info.metadata,
    )


def readable(message: M | None, address: str) -> M:
    """`message`, unless it is the None that `grpc.aio` gives for bytes that are no such message."""
    if message is None:
        raise ProtocolMismatchError(
            f"{address or 'the peer'} sent bytes that are no message of this protocol; is it the "
            "right Outrider service, of the same version?"
        )
    return message


@dataclass(frozen=True, slots=True)
class _Details:
    message: str
    info: error_details_pb2.ErrorInfo
    request: error_details_pb2.RequestInfo
    retry_after_s: float | None


def _details(rpc_error: grpc.Call | grpc.aio.AioRpcError) -> _Details | None:
    info = error_details_pb2.ErrorInfo()
    request = error_details_pb2.RequestInfo()
    retry = error_details_pb2.RetryInfo()
    retry_after_s = None
    try:
        status: status_pb2.Status | None = rpc_status.from_call(rpc_error)
        if status is None:
            return None
        for detail in status.details:
            detail.Unpack(info)
            detail.Unpack(request)
            if detail.Unpack(retry):
                retry_after_s = retry.retry_delay.ToMilliseconds() / 1000
    except (ValueError, DecodeError):
        # Damaged, or at odds with the code: something on the way rewrote it. The code counts.
        return None
    return _Details(status.message, info, request, retry_after_s)


def _plain(
    code: grpc.StatusCode,
    details: str,
    address: str,
    timeout_s: float | None,
    has_answered: bool,
) -> str:
    peer = address or "the peer"
    reason = f" (gRPC: {details})" if details else ""
    if code is grpc.StatusCode.UNAVAILABLE:
        if has_answered:
            return f"the connection to {peer} broke{reason}"
        for sign, told in _TLS_SIGNS:
            if sign in details:
                return f"{peer} {told}{reason}"
        return f"nothing answers at {peer}; is it running?{reason}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        limit = "its deadline" if timeout_s is None else f"{timeout_s:g} s"
        return f"the answer from {peer} took longer than {limit}"
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return (
            f"{peer} does not offer this call; is it the right Outrider service, "
            f"of the same version?{reason}"
        )
    if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
        return f"{peer} refused the caller; check credentials and metadata{reason}"
    return f"{peer} ended the call with {code.name}{reason}"


def _presentable(error: Exception) -> OutriderError:
    """`error` where its message was written for callers, else a stand-in naming the log line."""
    request_id = ""
    if isinstance(error, OutriderError):
        if _row(error).error is not InternalError or ERROR_ID_KEY in error.metadata:
            return error
        request_id = error.request_id
    error_id = uuid.uuid4().hex[:12]
    _logger.error("internal error %s", error_id, exc_info=error)
    return InternalError(
        f"internal error {error_id}; the service's log explains it under this id",
        request_id=request_id,
        metadata={ERROR_ID_KEY: error_id},
    )


def _row(error: OutriderError) -> Row:
    # A subclass that the table does not know is told as its nearest base.
    for kind in type(error).__mro__:
        if kind in _BY_ERROR:
            return _BY_ERROR[kind]
    return _BY_ERROR[InternalError]


def _number(code: grpc.StatusCode) -> int:
    number: int = code.value[0]
    return number


def _clipped(text: str, limit_bytes: int) -> str:
    encoded = text.encode("utf-8", errors="replace")
    if len(encoded) <= limit_bytes:
        return encoded.decode("utf-8")
    return encoded[: limit_bytes - 3].decode("utf-8", errors="ignore") + "…"


def _clipped_items(metadata: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    left_bytes = _METADATA_BYTES
    for key, value in metadata.items():
        key, value = _clipped(key, 64), _clipped(value, 256)
        left_bytes -= len(key.encode()) + len(value.encode())
        if left_bytes < 0:
            return
        yield key, value
