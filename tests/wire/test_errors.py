"""The table of errors by itself: complete, unambiguous, small on the wire, and mute about bugs."""

import logging
import subprocess
import sys

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from outrider import errors
from outrider.errors import (
    CapacityError,
    DeadlineError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutriderError,
    StateMismatchError,
    TokenizerMismatchError,
    UnavailableError,
)
from outrider.wire.errors import DOMAIN, TABLE, from_rpc_error, to_status


def received(status: grpc.Status) -> grpc.aio.AioRpcError:
    """What a caller sees of `status`."""
    return grpc.aio.AioRpcError(
        code=status.code,
        details=status.details,
        initial_metadata=grpc.aio.Metadata(),
        trailing_metadata=grpc.aio.Metadata(*status.trailing_metadata),
    )


def details_of(status: grpc.Status) -> list[object]:
    rich = rpc_status.from_call(received(status))
    found = []
    for packed in rich.details:
        detail = getattr(error_details_pb2, packed.TypeName().rpartition(".")[2])()
        packed.Unpack(detail)
        found.append(detail)
    return found


def test_every_domain_error_has_one_row_and_one_reason():
    domain = [
        value
        for value in vars(errors).values()
        if isinstance(value, type)
        and issubclass(value, OutriderError)
        and value is not OutriderError
    ]
    assert [row.error for row in TABLE] == domain
    assert len({row.reason for row in TABLE}) == len(TABLE)
    assert all(row.reason == row.reason.upper() for row in TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.reason)
def test_a_row_is_read_back_as_it_was_told(row):
    metadata = {"error_id": "abc"}
    told = row.error("got 1, wanted 2", request_id="r", retry_after_s=0.25, metadata=metadata)
    status = to_status(told)
    read = from_rpc_error(received(status))
    assert status.code is row.code
    assert type(read) is row.error
    assert (read.message, read.request_id, read.retry_after_s, read.metadata) == (
        "got 1, wanted 2",
        "r",
        0.25,
        metadata,
    )


def test_details_are_the_standard_ones():
    told = NotFoundError("no", request_id="r", retry_after_s=1.5, metadata={"name": "x"})
    info, request, retry = details_of(to_status(told))
    assert (info.domain, info.reason, dict(info.metadata)) == (
        DOMAIN,
        "NOT_FOUND",
        {"name": "x"},
    )
    assert request.request_id == "r"
    assert retry.retry_delay.ToMilliseconds() == 1500


@pytest.mark.parametrize("retry_after_s", [1.0, None])
def test_a_capacity_error_says_when_to_come_back_only_where_that_can_help(retry_after_s):
    told = CapacityError("full", retry_after_s=retry_after_s)
    read = from_rpc_error(received(to_status(told)))
    assert read.retry_after_s == retry_after_s
    # What a service said reaches the user through the orchestrator unchanged.
    assert from_rpc_error(received(to_status(read))).retry_after_s == retry_after_s


@pytest.mark.parametrize("retry_after_s", [float("nan"), float("inf")])
def test_a_retry_time_that_is_no_time_is_left_out(retry_after_s):
    told = UnavailableError("loading", retry_after_s=retry_after_s)
    assert from_rpc_error(received(to_status(told))).retry_after_s is None


def test_an_unlisted_subclass_is_told_as_its_nearest_base():
    class OtherTokenizerError(TokenizerMismatchError):
        pass

    assert type(from_rpc_error(received(to_status(OtherTokenizerError("x"))))) is (
        TokenizerMismatchError
    )


@pytest.mark.parametrize(
    "bug",
    [
        KeyError("secret"),
        InternalError("secret", request_id="r"),
        OutriderError("secret", request_id="r", metadata={"path": "secret"}),
    ],
    ids=lambda bug: type(bug).__name__,
)
def test_a_bug_is_told_by_an_id_that_the_log_explains(bug, caplog):
    with caplog.at_level(logging.ERROR):
        status = to_status(bug)
    read = from_rpc_error(received(status))
    assert status.code is grpc.StatusCode.INTERNAL
    assert "secret" not in status.details
    assert b"secret" not in status.trailing_metadata[0][1]
    assert read.metadata["error_id"] in read.message
    assert read.metadata["error_id"] in caplog.text
    assert "secret" in caplog.text
    assert read.request_id == getattr(bug, "request_id", "")


def test_a_relayed_internal_error_keeps_its_id(caplog):
    first = from_rpc_error(received(to_status(KeyError("secret"))))
    caplog.clear()
    second = from_rpc_error(received(to_status(first)))
    assert (second.message, second.metadata) == (first.message, first.metadata)
    assert not caplog.records


@pytest.mark.parametrize("character", ["x", "é", "\n", "🜁", "\ud800"])
def test_the_largest_status_fits_into_grpc_headers(character):
    long = character * 100_000
    told = InvalidArgumentError(
        long, request_id=long, metadata={f"{key}": long for key in range(100)}
    )
    status = to_status(told)
    percent_encoded = 3 * len(status.details.encode())
    base64_encoded = len(status.trailing_metadata[0][1]) * 4 / 3
    assert percent_encoded + base64_encoded < 8 * 1024 - 512
    assert from_rpc_error(received(status)).message == status.details


def test_a_reason_of_a_newer_version_falls_back_to_its_code():
    rich = status_pb2.Status(code=grpc.StatusCode.FAILED_PRECONDITION.value[0], message="m")
    rich.details.add().Pack(error_details_pb2.ErrorInfo(reason="NEWER", domain=DOMAIN))
    read = from_rpc_error(received(rpc_status.to_status(rich)))
    assert (type(read), read.message) == (StateMismatchError, "m")


def test_a_reason_of_another_domain_is_not_ours():
    rich = status_pb2.Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message="m")
    rich.details.add().Pack(error_details_pb2.ErrorInfo(reason="CAPACITY", domain="other.org"))
    assert type(from_rpc_error(received(rpc_status.to_status(rich)))) is UnavailableError


@pytest.mark.parametrize("damaged", [b"\xff\xff", status_pb2.Status(code=3).SerializeToString()])
def test_damaged_details_leave_the_code(damaged):
    error = grpc.aio.AioRpcError(
        grpc.StatusCode.NOT_FOUND,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(("grpc-status-details-bin", damaged)),
        details="gone",
    )
    assert type(from_rpc_error(error)) is NotFoundError


@pytest.mark.parametrize(
    ("code", "has_answered", "kind", "words"),
    [
        (
            grpc.StatusCode.UNAVAILABLE,
            False,
            UnavailableError,
            "nothing answers at attic:7071; is it running? (gRPC: why)",
        ),
        (
            grpc.StatusCode.UNAVAILABLE,
            True,
            UnavailableError,
            "the connection to attic:7071 broke (gRPC: why)",
        ),
        (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            False,
            DeadlineError,
            "the answer from attic:7071 took longer than 2 s",
        ),
        (
            grpc.StatusCode.OUT_OF_RANGE,
            False,
            InvalidArgumentError,
            "attic:7071 ended the call with OUT_OF_RANGE (gRPC: why)",
        ),
    ],
)
def test_a_bare_code_gets_a_message_with_the_address(code, has_answered, kind, words):
    bare = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details="why")
    read = from_rpc_error(bare, address="attic:7071", timeout_s=2.0, has_answered=has_answered)
    assert (type(read), read.message) == (kind, words)


def test_a_failure_without_a_status_is_an_internal_error():
    assert type(from_rpc_error(grpc.RpcError())) is InternalError


def test_the_table_needs_neither_torch_nor_pydantic():
    code = (
        "import sys, outrider.wire.errors;"
        "sys.exit(bool({'torch', 'pydantic', 'ray'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
