"""Messages with one field changed."""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message


def changed(message: Message, change: Callable[[Any], object]) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    change(copy)
    return copy


def put(name: str, value: object) -> Callable[[Any], object]:
    """Sets a field by its path: `nodes.0.q`, or a list's whole content."""

    def change(message: Any) -> None:
        *path, last = name.split(".")
        for step in path:
            message = message[int(step)] if step.isdigit() else getattr(message, step)
        if isinstance(value, list):
            del getattr(message, last)[:]
            getattr(message, last).extend(value)
        else:
            setattr(message, last, value)

    return change
