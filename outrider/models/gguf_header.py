"""The metadata of a GGUF file, read without its tensors and without the lists of its vocabulary.

Knows the file format (version 2 and 3, little-endian); knows no model. The package `gguf` reads the
same, but takes seconds for a large vocabulary: it makes an array of every token.
"""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from outrider.errors import InvalidArgumentError

Value = int | float | str | bool | tuple[int | float | bool, ...]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS |= {12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_LISTED = 4096
"""Longer lists are vocabularies; those of layers are shorter."""

_MOST_STRING_BYTES = 2**24


def read_header(path: Path) -> Mapping[str, Value]:
    """Scalars, strings and short lists of numbers by their keys.

    Raises InvalidArgumentError for what is no GGUF file or is cut off, OSError where it cannot be
    read.
    """
    with path.open("rb") as file:
        try:
            return _read(file)
        except (struct.error, UnicodeDecodeError, EOFError, RecursionError) as error:
            raise InvalidArgumentError(
                f"{path.name} is damaged or cut off in its header; fetch it again"
            ) from error
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{path.name} {error.message}") from error


def _read(file: BinaryIO) -> dict[str, Value]:
    if file.read(4) != b"GGUF":
        raise InvalidArgumentError("is no GGUF file; give a model that llama.cpp loads")
    version = _number(file, "I")
    if version not in (2, 3):
        raise InvalidArgumentError(f"has GGUF version {version}; versions 2 and 3 are known")
    _number(file, "Q")  # tensors
    header: dict[str, Value] = {}
    for _ in range(int(_number(file, "Q"))):
        key = _string(file)
        value = _value(file, int(_number(file, "I")))
        if value is not None:
            header[key] = value
    return header


def _value(file: BinaryIO, kind: int) -> Value | None:
    if kind == _STRING:
        return _string(file)
    if kind != _ARRAY:
        return _number(file, _scalar(kind))
    element, count = int(_number(file, "I")), int(_number(file, "Q"))
    if element == _STRING:
        for _ in range(count):
            _skip(file, int(_number(file, "Q")))
        return None
    if element == _ARRAY:
        for _ in range(count):
            _value(file, _ARRAY)
        return None
    code = _scalar(element)
    if count > _MOST_LISTED:
        _skip(file, count * struct.calcsize(f"<{code}"))
        return None
    return struct.unpack(f"<{count}{code}", _exactly(file, struct.calcsize(f"<{count}{code}")))


def _scalar(kind: int) -> str:
    if kind not in _SCALARS:
        raise InvalidArgumentError(f"has a value of the unknown type {kind}; fetch it again")
    return _SCALARS[kind]


def _number(file: BinaryIO, code: str) -> int | float | bool:
    number: int | float | bool
    (number,) = struct.unpack(f"<{code}", _exactly(file, struct.calcsize(f"<{code}")))
    return number


def _string(file: BinaryIO) -> str:
    return _exactly(file, int(_number(file, "Q"))).decode("utf-8", errors="replace")


def _skip(file: BinaryIO, count: int) -> None:
    if count > _MOST_STRING_BYTES * 16:
        raise EOFError
    file.seek(count, 1)


def _exactly(file: BinaryIO, count: int) -> bytes:
    if count > _MOST_STRING_BYTES:
        raise EOFError
    data = file.read(count)
    if len(data) != count:
        raise EOFError
    return data
