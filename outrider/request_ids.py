"""How a request is named, in errors, in logs and on the wire. Pure."""

import re
import uuid

REQUEST_ID = "x-request-id"
"""Metadata key, and HTTP header, under which a caller names its request."""

_SANE = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def is_sane(request_id: str) -> bool:
    """Whether it can stand in a log and in a header: up to 64 letters, digits and _ . : -"""
    return _SANE.fullmatch(request_id) is not None


def request_id_of(asked: str) -> str:
    """The caller's own id of a request, where it is a sane one; else a new one."""
    return asked if is_sane(asked) else uuid.uuid4().hex
