"""Every field and every enum value that the protocol has ever had: `known_fields.txt`, a line each.

Append those that were added: .venv/bin/python tests/wire/known_fields.py
"""

from pathlib import Path

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
)

from outrider.v1 import common_pb2, draft_pb2, orchestrator_pb2, verify_pb2

LIST = Path(__file__).parent / "known_fields.txt"
_TYPES = FieldDescriptorProto.Type.DESCRIPTOR.values_by_number
PROTOS = [file.DESCRIPTOR for file in (common_pb2, draft_pb2, orchestrator_pb2, verify_pb2)]


def known() -> list[str]:
    """The lines: what it belongs to, number, type, name."""
    return LIST.read_text().splitlines()


def present() -> list[str]:
    """The lines of today's protos."""
    lines: list[str] = []
    for proto in PROTOS:
        for message in proto.message_types_by_name.values():
            lines += [_field(message, field) for field in message.fields]
        for enum in proto.enum_types_by_name.values():
            lines += [
                f"{enum.full_name} {value.number} value {value.name}" for value in enum.values
            ]
    return lines


def reserved() -> set[tuple[str, int | str]]:
    """What can never be used again: numbers and names, with what they belong to."""
    found: set[tuple[str, int | str]] = set()
    for proto in PROTOS:
        for message in proto.message_types_by_name.values():
            text = DescriptorProto()
            message.CopyToProto(text)
            found |= {(message.full_name, name) for name in text.reserved_name}
            for span in text.reserved_range:
                found |= {(message.full_name, number) for number in range(span.start, span.end)}
        for enum in proto.enum_types_by_name.values():
            values = EnumDescriptorProto()
            enum.CopyToProto(values)
            found |= {(enum.full_name, name) for name in values.reserved_name}
            for closed in values.reserved_range:
                numbers = range(closed.start, closed.end + 1)
                found |= {(enum.full_name, number) for number in numbers}
    return found


def _field(message: Descriptor, field: FieldDescriptor) -> str:
    kind: Descriptor | EnumDescriptor | None = field.message_type or field.enum_type
    type_name = kind.full_name if kind else _TYPES[field.type].name
    many = "repeated-" if field.is_repeated else ""
    return f"{message.full_name} {field.number} {many}{type_name} {field.name}"


if __name__ == "__main__":
    lines = known() if LIST.exists() else []
    lines += [line for line in present() if line not in lines]
    LIST.write_text("".join(f"{line}\n" for line in lines))
