"""The `key=value,key=value` after a backend's name, read with bounds. Knows no backend."""

import math
from collections.abc import Sequence

from outrider.errors import InvalidArgumentError


class Arguments:
    """Reads each key once; `finish` refuses the keys that nobody read, naming those that exist.

    >>> arguments = Arguments.parse("ngram", "n=4")
    >>> arguments.whole("n", 3, 1, 16)
    4
    >>> arguments.finish()
    """

    def __init__(self, backend: str, values: dict[str, str]) -> None:
        self._backend = backend
        self._values = values
        self._known: list[str] = []

    @classmethod
    def parse(cls, backend: str, argument: str) -> "Arguments":
        """Splits `argument`; raises InvalidArgumentError unless it is key=value, each key once."""
        values: dict[str, str] = {}
        for part in argument.split(",") if argument else []:
            key, separator, value = part.partition("=")
            key, value = key.strip(), value.strip()
            if not separator or not key or not value or key in values:
                raise InvalidArgumentError(
                    f"{backend} got {part!r} in {argument!r}; give key=value,key=value with each "
                    "key once"
                )
            values[key] = value
        return cls(backend, values)

    def text(self, key: str, default: str = "") -> str:
        """The value as it is."""
        self._known.append(key)
        return self._values.pop(key, default)

    def choice(self, key: str, choices: Sequence[str]) -> str:
        """One of `choices`; the first is the default."""
        value = self.text(key, choices[0])
        if value not in choices:
            self._refuse(key, value, " or ".join(choices))
        return value

    def whole(self, key: str, default: int, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        value = self.text(key, str(default))
        if not value.isascii() or not value.isdecimal() or not low <= int(value) <= high:
            self._refuse(key, value, f"a whole number from {low} to {high}")
        return int(value)

    def optional_whole(self, key: str, low: int, high: int) -> int | None:
        """A whole number from `low` to `high`, or None where the value is missing or `none`."""
        if self._values.get(key, "none") == "none":
            self.text(key)
            return None
        return self.whole(key, low, low, high)

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        value = self.text(key, repr(default))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not low <= number <= high:
            self._refuse(key, value, f"a number from {low:g} to {high:g}")
        return number

    def finish(self) -> None:
        """Raises InvalidArgumentError for keys that nobody read."""
        if self._values:
            raise InvalidArgumentError(
                f"{self._backend} does not know {', '.join(self._values)}; known keys are "
                f"{', '.join(self._known)}"
            )

    def _refuse(self, key: str, value: str, wanted: str) -> None:
        raise InvalidArgumentError(f"{self._backend} got {key}={value}; give {wanted}")
