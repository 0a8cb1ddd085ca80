"""What a schema costs is known before the library sees it; ordinary schemas are none of it."""

import json
from typing import Any

import pytest

from outrider.errors import InvalidArgumentError
from outrider.sampling.grammar import GrammarCompiler
from outrider.sampling.schema import MAX_CONJOINED, MAX_MULTIPLE, read_schema
from outrider.types import Grammar
from outrider.vocabulary import Vocabulary

COMPILER = GrammarCompiler(Vocabulary(tuple(bytes([i]) for i in range(256)), (False,) * 256), ())
PER_PART = 4
PARTS = range(3)


def hard(part: int) -> dict[str, Any]:
    """A string with as many patterns as may meet, or nearly; two of them are too many."""
    return {"allOf": [{"pattern": f"a{part}.*{i}"} for i in range(PER_PART)]}


def defs(name: str, parts: dict[str, Any]) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}", "$defs": parts}


def crossed() -> dict[str, Any]:
    """A and B refer to one another, so what either holds is met twice: below itself, and with the
    others."""
    parts: dict[str, Any] = {}
    for k in PARTS:
        parts[f"A{k}"] = {**hard(k), "properties": {f"q{k}": {"$ref": f"#/$defs/B{k}"}}}
        parts[f"B{k}"] = {"properties": {"p": {"$ref": f"#/$defs/A{k}"}}}
    every = [{"$ref": f"#/$defs/B{k}"} for k in PARTS]
    return {
        "anyOf": [*({"$ref": f"#/$defs/A{k}"} for k in PARTS), {"allOf": every}],
        "$defs": parts,
    }


def doubled(keyword: str, leaf: dict[str, Any], depth: int = 20) -> dict[str, Any]:
    parts = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(depth)}
    return defs("d0", {**parts, f"d{depth}": leaf})


MEETING: dict[str, dict[str, Any]] = {
    "items": {"allOf": [{"items": hard(k)} for k in PARTS]},
    "list of items": {"allOf": [{"items": [{}, hard(k)]} for k in PARTS]},
    "prefixItems": {"allOf": [{"prefixItems": [hard(k)]} for k in PARTS]},
    "prefixItems over items": {
        "allOf": [{"prefixItems": [hard(0)]}, {"items": hard(1)}, {"items": hard(2)}]
    },
    "additionalItems": {"allOf": [{"items": [], "additionalItems": hard(k)} for k in PARTS]},
    "additionalProperties": {
        "allOf": [
            {"properties": {"x": hard(0)}},
            *({"additionalProperties": hard(k)} for k in (1, 2)),
        ]
    },
    "patternProperties": {"patternProperties": {f"^{k}*a": hard(k) for k in PARTS}},
    "patternProperties over properties": {
        "properties": {"a": hard(0)},
        "patternProperties": {"a": hard(1), "a|b": hard(2)},
    },
    "anyOf in allOf": {"allOf": [{"anyOf": [{}, hard(k)]} for k in PARTS]},
    "oneOf beside anyOf": {"oneOf": [hard(0), {}], "anyOf": [{}, hard(1)], **hard(2)},
    "a cycle": crossed(),
    "twice the same": doubled("allOf", {"pattern": "a"}, 4),
    "an unknown keyword": {"not": {}, "properties": {str(k): hard(k) for k in PARTS}},
    "an unknown list": {"later": [{}], "properties": {str(k): hard(k) for k in PARTS}},
    "another document": {"$ref": "x#/a", "properties": {str(k): hard(k) for k in PARTS}},
    "an anchor": {"$ref": "#a", "properties": {str(k): hard(k) for k in PARTS}},
    "a base of its own": {
        "$ref": "#/$defs/light",
        "$defs": {"light": {"$id": "x:y"}, **{str(k): hard(k) for k in PARTS}},
    },
}


@pytest.mark.parametrize("how", MEETING)
def test_too_many_patterns_are_refused_however_they_come_to_meet(how: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"at most {MAX_CONJOINED} meet"):
        read_schema(json.dumps(MEETING[how]))


TOO_MUCH: dict[str, tuple[dict[str, Any], str]] = {
    "a doubling allOf": (doubled("allOf", {"type": "object"}), "too deeply"),
    "a product of choices": (
        {"allOf": [{"anyOf": [{"title": str(i)} for i in range(4)]} for _ in range(20)]},
        "too many ways",
    ),
    "a reference to itself": (defs("x", {"x": {"$ref": "#/$defs/x"}}), "too deeply"),
    "itself among all": (defs("x", {"x": {"allOf": [{"$ref": "#/$defs/x"}]}}), "too deeply"),
    "a deep choice": (doubled("anyOf", {"type": "string"}, 400), "too deeply"),
    "many patternProperties": (
        {"patternProperties": {f"^x{i}_": {"type": "string"} for i in range(300)}},
        "too many ways",
    ),
    "a long multiple": ({"multipleOf": 999_983}, f"multiple of 999983 .* {MAX_MULTIPLE}"),
    "a fine multiple": ({"multipleOf": 0.999983}, "multiple of 999983 units"),
    "multiples that meet": (
        {"allOf": [{"multipleOf": 97}, {"multipleOf": 99.73}]},
        "multiple of 967",
    ),
    "many multiples": (
        {"properties": {str(i): {"multipleOf": 40_000 + i} for i in range(10)}},
        "too many ways",
    ),
}


@pytest.mark.parametrize("how", TOO_MUCH)
def test_what_takes_the_library_long_is_refused(how: str) -> None:
    schema, reason = TOO_MUCH[how]
    with pytest.raises(InvalidArgumentError, match=reason):
        read_schema(json.dumps(schema))


UUID = {"type": "string", "format": "uuid"}
DATED = {
    "type": "object",
    "properties": {
        "id": UUID,
        **{name: {"type": "string", "format": "date-time"} for name in ("created", "updated")},
    },
    "required": ["id"],
}

ORDINARY: dict[str, dict[str, Any]] = {
    "a person": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    "a tree": defs(
        "node",
        {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "pattern": "^[a-z]+$"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                },
                "required": ["name"],
            }
        },
    ),
    "a tree of things with a base": defs(
        "node",
        {
            "base": DATED,
            "node": {
                "allOf": [{"$ref": "#/$defs/base"}],
                "properties": {"parts": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            },
        },
    ),
    "two trees in one another": defs(
        "file",
        {
            "file": {"properties": {"name": UUID, "in": {"$ref": "#/$defs/folder"}}},
            "folder": {"properties": {"name": UUID, "first": {"$ref": "#/$defs/file"}}},
        },
    ),
    "kinds of events": {
        "anyOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": f"kind{i}"}, "id": UUID, "at": {"format": "date"}},
                "required": ["kind", "id"],
            }
            for i in range(24)
        ]
    },
    "a form": {
        "type": "object",
        "properties": {
            **{f"code{i}": {"type": "string", "pattern": f"^[A-Z]{{2}}{i}$"} for i in range(40)},
            "mail": {"type": "string", "format": "email", "maxLength": 200},
            "color": {"enum": ["red", "green", None]},
        },
    },
    "nullable fields": {
        "type": "object",
        "properties": {
            f"field{i}": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]}
            for i in range(20)
        },
    },
    "a pair": {"type": "array", "prefixItems": [UUID, {"type": "number"}], "minItems": 2},
    "an older pair": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": [{"type": "string", "pattern": "^a"}, {"type": "number"}],
        "additionalItems": False,
    },
    "a table": {
        "type": "array",
        "maxItems": 1000,
        "items": {"type": "array", "items": {"type": "number", "multipleOf": 0.01}},
    },
    "a map": {
        "type": "object",
        "patternProperties": {"^x-": {"type": "string"}, "^[0-9]+$": {"type": "integer"}},
        "additionalProperties": False,
    },
    "a described one": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/described",
        "title": "Described",
        "description": "With all that does not matter.",
        "examples": [{"id": "x", "created": "y"}],
        "default": {"id": "x"},
        "$defs": {"dated": DATED},
        "type": "object",
        "properties": {f"part{i}": {"$ref": "#/$defs/dated"} for i in range(12)},
    },
    "any JSON": {},
}


@pytest.mark.parametrize("what", ORDINARY)
def test_an_ordinary_schema_is_taken(what: str) -> None:
    state = COMPILER.compile(Grammar(json_schema=json.dumps(ORDINARY[what])))
    assert bool(state.text_mask().any())
