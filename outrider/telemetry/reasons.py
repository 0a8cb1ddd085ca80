"""What errors are called in metrics and traces, where only their kind may be told. Pure."""

import re
from collections.abc import Iterator

from outrider.errors import OutriderError


def reason_of(error: BaseException) -> str:
    """The kind of an error in one word.

    >>> from outrider.errors import InvalidArgumentError
    >>> reason_of(InvalidArgumentError("what was got")), reason_of(KeyError("bug"))
    ('invalid_argument', 'internal')
    """
    return _word(type(error))


def all_reasons() -> set[str]:
    """Those of all errors."""
    return set(map(_word, _kinds(OutriderError)))


def _word(kind: type[BaseException]) -> str:
    if not issubclass(kind, OutriderError) or kind is OutriderError:
        return "internal"
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__.removesuffix("Error")).lower()


def _kinds(kind: type[OutriderError]) -> Iterator[type[OutriderError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)
