"""What a JSON schema may ask for, checked before the grammar library sees it.

The library intersects the regexes of strings that several subschemas constrain, in time and memory
that double with each; it would take a machine down for a schema of a kilobyte. Knows no library.
"""

import json
from collections.abc import Iterable
from typing import Any

from outrider.errors import InvalidArgumentError

MAX_REGEX_BYTES = 2**13
"""Most bytes of a regex, or of all `pattern`s of a schema: compiling takes quadratic time."""

MAX_CONJOINED = 10
"""Most `pattern`s and `format`s on one string; with a dozen the library gives up in any case."""

OPTIONS = "x-guidance"

_MAPS = ("properties", "patternProperties")
_LISTS = ("prefixItems",)
_SINGLES = ("additionalProperties", "items", "propertyNames", "contains")


def read_schema(text: str) -> dict[str, Any]:
    """The schema as an object.

    Raises InvalidArgumentError for text that is no JSON object, for one that sets the library's own
    options, and for regexes that cost too much.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal(f"the JSON schema is no JSON ({error})") from error
    if not isinstance(schema, dict):
        raise refusal(f"the JSON schema is {text.strip()[:40]}; give a JSON object")
    if OPTIONS in schema:
        raise refusal(f"the JSON schema sets {OPTIONS}, which is not offered; leave it out")
    regexes = _Regexes(schema)
    if regexes.size > MAX_REGEX_BYTES:
        raise refusal(
            f"its regexes have {regexes.size} bytes together; give at most {MAX_REGEX_BYTES}"
        )
    try:
        conjoined = regexes.conjoined()
    except RecursionError as error:
        raise refusal("its subschemas refer to one another too deeply; flatten it") from error
    if conjoined > MAX_CONJOINED:
        raise refusal(
            f"up to {conjoined} patterns and formats may meet on one string; let at most "
            f"{MAX_CONJOINED} meet, with less of allOf, anyOf and $ref"
        )
    return schema


def refusal(reason: str) -> InvalidArgumentError:
    """The error of every grammar that is not taken."""
    return InvalidArgumentError(f"the grammar cannot be used: {reason}")


class _Regexes:
    """Counts the regexes of a schema; what it cannot tell, it counts too high."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._known: dict[int, int] = {}
        self._total = 0
        self.size = 0
        waiting: list[Any] = [schema]
        while waiting:
            item = waiting.pop()
            if isinstance(item, dict):
                waiting += item.values()
                self._total += _own(item)
                patterns = [item.get("pattern"), *_keys(item.get("patternProperties"))]
                self.size += sum(len(p.encode()) for p in patterns if isinstance(p, str))
            elif isinstance(item, list):
                waiting += item

    def conjoined(self) -> int:
        """The most patterns and formats that any string may have to match at once, or more."""
        return self._at(self._schema)

    def _at(self, schema: Any) -> int:
        """Within `schema`, anywhere: parts that apply to one place add up, and so do the parts of
        what they hold, for the library merges them name by name.
        """
        if not isinstance(schema, dict):
            return 0
        if id(schema) in self._known:
            return self._known[id(schema)]
        self._known[id(schema)] = 0  # met again below itself: another place of the text
        count = max(_own(schema), self._children(schema))
        count += sum(map(self._at, _list(schema.get("allOf"))))
        for name in ("anyOf", "oneOf"):
            count += self._most(_list(schema.get(name)))
        if "$ref" in schema:
            count += self._referred(schema["$ref"])
        self._known[id(schema)] = count
        return count

    def _children(self, schema: dict[str, Any]) -> int:
        groups = [_values(schema.get(name)) for name in _MAPS]
        groups += [_list(schema.get(name)) for name in _LISTS]
        groups += [[schema.get(name)] for name in _SINGLES]
        return sum(map(self._most, groups))

    def _most(self, schemas: Iterable[Any]) -> int:
        return max(map(self._at, schemas), default=0)

    def _referred(self, pointer: Any) -> int:
        """Anything but a plain pointer into this schema may be all that it has."""
        found: Any = self._schema
        if not isinstance(pointer, str) or not pointer.startswith("#"):
            return self._total
        for part in pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                return self._total
            found = found[key]
        return self._at(found)


def _own(schema: dict[str, Any]) -> int:
    return ("pattern" in schema) + ("format" in schema)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else []


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []
