"""Bytes of an earlier version still mean the same. What to do on purpose: see golden_messages."""

from collections.abc import Iterator

import pytest
from golden_messages import FOLDER, MESSAGES, golden_bytes
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from outrider.v1 import common_pb2, draft_pb2, orchestrator_pb2, verify_pb2


@pytest.mark.parametrize("name", MESSAGES)
def test_old_bytes_parse_to_the_same_message(name: str) -> None:
    assert type(MESSAGES[name]).FromString(golden_bytes(name)) == MESSAGES[name]


@pytest.mark.parametrize("name", MESSAGES)
def test_the_same_message_is_sent_as_the_same_bytes(name: str) -> None:
    assert MESSAGES[name].SerializeToString(deterministic=True) == golden_bytes(name)


def test_there_is_no_golden_file_without_a_message() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(MESSAGES)


def test_every_field_of_every_message_is_set_in_one_of_them() -> None:
    files = (common_pb2, draft_pb2, orchestrator_pb2, verify_pb2)
    expected = {
        field.full_name
        for file in files
        for message in file.DESCRIPTOR.message_types_by_name.values()
        for field in message.fields
    }
    got = {name for message in MESSAGES.values() for name in _set_fields(message)}
    assert got == expected


def test_every_message_type_is_among_them() -> None:
    files = (common_pb2, draft_pb2, orchestrator_pb2, verify_pb2)
    types: set[Descriptor] = set()
    for message in MESSAGES.values():
        types |= set(_types(message))
    expected = {m for f in files for m in f.DESCRIPTOR.message_types_by_name.values()}
    assert {t.full_name for t in types} == {t.full_name for t in expected}


def _children(message: Message) -> Iterator[Message]:
    for field, value in message.ListFields():
        if field.message_type is not None:
            yield from value if field.is_repeated else [value]


def _types(message: Message) -> Iterator[Descriptor]:
    yield message.DESCRIPTOR
    for child in _children(message):
        yield from _types(child)


def _set_fields(message: Message) -> Iterator[str]:
    for field, _ in message.ListFields():
        yield field.full_name
    for child in _children(message):
        yield from _set_fields(child)
