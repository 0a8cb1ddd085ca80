"""What a JSON schema may ask for, checked before the grammar library sees it.

The library intersects the regexes of strings that several subschemas constrain, in time and memory
that double with each; it would take a machine down for a schema of a kilobyte. Knows no library.
"""

import json
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import product
from math import isfinite, lcm
from typing import Any

from outrider.errors import InvalidArgumentError

MAX_REGEX_BYTES = 2**13
"""Most bytes of a regex, or of all `pattern`s of a schema: compiling takes quadratic time."""

MAX_CONJOINED = 10
"""Most `pattern`s and `format`s on one string; with a dozen the library gives up in any case."""

MAX_STEPS = 200_000
"""Most subschemas looked at in all places of the text, and what else costs: a fraction of a second
of ours, and at most some seconds of the library's."""

MAX_MEETING = 256
"""Most subschemas at one place: the library follows references by recursion."""

MAX_MULTIPLE = 50_000
"""Largest `multipleOf`, in units of its last decimal place, and largest sum of several: the
library's automata have as many states."""

MULTIPLE_STEPS = MAX_STEPS // MAX_MULTIPLE

PATTERN_KEYS_STEPS = 20
"""Steps for each pair of `patternProperties` at one place: the library intersects their regexes."""

OPTIONS = "x-guidance"

Schema = dict[str, Any]

_READ = frozenset(
    (
        *("allOf", "anyOf", "oneOf", "$ref", "items", "prefixItems", "additionalItems"),
        *("properties", "patternProperties", "additionalProperties"),
    )
)
_DATA = frozenset(
    ["$defs", "definitions", "enum", "const", "default", "examples", "example", "required", "type"]
)
"""They hold no schema that applies where they stand."""


def read_schema(text: str) -> Schema:
    """The schema as an object.

    Raises InvalidArgumentError for text that is no JSON object, for one that sets the library's own
    options, and for regexes and combinations that cost too much.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal(f"the JSON schema is no JSON ({error})") from error
    if not isinstance(schema, dict):
        raise refusal(f"the JSON schema is {text.strip()[:40]}; give a JSON object")
    if OPTIONS in schema:
        raise refusal(f"the JSON schema sets {OPTIONS}, which is not offered; leave it out")
    places = _Places(schema)
    if places.regex_bytes > MAX_REGEX_BYTES:
        raise refusal(
            f"its regexes have {places.regex_bytes} bytes together; give at most {MAX_REGEX_BYTES}"
        )
    try:
        places.check()
    except RecursionError as error:
        raise _too_deep() from error
    return schema


def refusal(reason: str) -> InvalidArgumentError:
    """The error of every grammar that is not taken."""
    return InvalidArgumentError(f"the grammar cannot be used: {reason}")


def _too_deep() -> InvalidArgumentError:
    return refusal(
        "its subschemas refer to one another too deeply, or combine in too many ways; flatten it"
    )


class _Places:
    """The places of the text, and the subschemas that meet at each: one of every anyOf and oneOf,
    all of the rest, as often as they apply, for the library merges them name by name.

    What it cannot tell, it counts too high: a keyword that it does not read, or a reference that it
    cannot follow, may bring every regex of the schema with it.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._total = 0
        self._steps = 0
        names = ("$id", "id") if "draft-04" in str(schema.get("$schema")) else ("$id",)
        self._has_bases = False
        """Whether a part may have a base of its own, which its references are relative to."""
        self.regex_bytes = 0
        waiting: list[Any] = [schema]
        while waiting:
            item = waiting.pop()
            if isinstance(item, dict):
                waiting += item.values()
                self._total += _own(item)
                patterns = [item.get("pattern"), *_keys(item.get("patternProperties"))]
                self.regex_bytes += sum(len(p.encode()) for p in patterns if isinstance(p, str))
                has_base = any(isinstance(item.get(name), str) for name in names)
                self._has_bases |= has_base and item is not schema
            elif isinstance(item, list):
                waiting += item

    def check(self) -> None:
        """Raises InvalidArgumentError where too many regexes meet at one place, or too many
        subschemas in all places together."""
        known: set[tuple[int, ...]] = set()
        waiting: list[list[Any]] = [[self._schema]]
        while waiting:
            place = [schema for schema in waiting.pop() if isinstance(schema, dict)]
            key = tuple(sorted(map(id, place)))
            if key not in known:
                known.add(key)
                for met in self._choices(place, [], 0):
                    waiting += self._below(met)

    def _choices(self, todo: list[Schema], met: list[Schema], count: int) -> Iterator[list[Schema]]:
        """All that may meet where `met` and `todo` do, for each choice that anyOf and oneOf leave;
        `count` is the number of regexes in `met`.
        """
        while todo:
            schema = todo.pop()
            met.append(schema)
            count += _own(schema) + self._unread(schema)
            self._spend(1)
            if len(met) > MAX_MEETING:
                raise _too_deep()
            if count > MAX_CONJOINED:
                raise refusal(
                    f"{count} or more patterns and formats may meet on one string; let at most "
                    f"{MAX_CONJOINED} meet, with less of allOf, anyOf and $ref"
                )
            todo += _schemas(schema.get("allOf"))
            todo += self._referred(schema)
            options = [_schemas(schema.get(name)) for name in ("anyOf", "oneOf")]
            if any(options):
                for choice in product(*filter(None, options)):
                    self._spend(len(met) + len(todo))
                    yield from self._choices([*todo, *choice], list(met), count)
                return
        yield met

    def _below(self, met: list[Schema]) -> Iterator[list[Any]]:
        """The places right below one: each named property, any other one, each element."""
        patterned = [s for schema in met for s in _values(schema.get("patternProperties"))]
        self._spend(PATTERN_KEYS_STEPS * len(patterned) ** 2)
        names = {name for schema in met for name in _keys(schema.get("properties"))}
        multiple = _least_common(met)
        if multiple > MAX_MULTIPLE:
            raise refusal(
                f"a number has to be a multiple of {multiple} units of its last decimal place; "
                f"give at most {MAX_MULTIPLE}"
            )
        self._spend(MULTIPLE_STEPS * multiple)
        for name in (*sorted(names), None):
            self._spend(len(met) + len(patterned))
            yield patterned + [_property(schema, name) for schema in met]
        length = max((len(_prefix(schema)) for schema in met), default=0)
        for index in range(length + 1):
            self._spend(len(met))
            yield [_element(schema, index) for schema in met]

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise _too_deep()

    def _unread(self, schema: Schema) -> int:
        values = (schema[key] for key in schema if key not in _READ and key not in _DATA)
        count = sum(self._total for value in values if _has_object(value))
        return count + ("$ref" in schema and not self._referred(schema)) * self._total

    def _referred(self, schema: Schema) -> list[Schema]:
        """What a plain pointer into this schema points to; empty: anything."""
        pointer = schema.get("$ref")
        if not isinstance(pointer, str) or not pointer.startswith("#") or self._has_bases:
            return []
        found: Any = self._schema
        for part in pointer.split("/")[1:]:
            found = found.get(part.replace("~1", "/").replace("~0", "~"))
            if not isinstance(found, dict):
                return []
        return [found] if pointer == "#" or pointer.startswith("#/") else []


def _own(schema: Schema) -> int:
    return ("pattern" in schema) + ("format" in schema)


def _least_common(met: list[Schema]) -> int:
    """The number that the text must be a multiple of, in units of its last decimal place: as many
    states the library's automaton has.
    """
    numbers = [schema.get("multipleOf") for schema in met]
    exact = [Fraction(str(n)) for n in numbers if isinstance(n, int | float) and isfinite(n)]
    places = 1
    while any((n * places).denominator != 1 for n in exact):
        places *= 10
    return lcm(*(abs(int(n * places)) for n in exact)) if exact else 0


def _property(schema: Schema, name: str | None) -> Any:
    named = schema.get("properties")
    if name is not None and isinstance(named, dict) and name in named:
        return named[name]
    return schema.get("additionalProperties")


def _prefix(schema: Schema) -> list[Any]:
    """The schemas of the first elements: in `items`, where an older draft has a list there."""
    items = schema.get("items")
    return items if isinstance(items, list) else _list(schema.get("prefixItems"))


def _element(schema: Schema, index: int) -> Any:
    first = _prefix(schema)
    if index < len(first):
        return first[index]
    items = schema.get("items")
    return schema.get("additionalItems") if isinstance(items, list) else items


def _has_object(value: Any) -> bool:
    """Whether there may be a schema in it."""
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_has_object, value)))


def _schemas(value: Any) -> list[Schema]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _keys(value: Any) -> list[Any]:
    return list(value) if isinstance(value, dict) else []


def _values(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else ()
