"""Conversion of JSON Schema for Anthropic's tools, strict tools and structured answers.

A plain tool may have any schema whose root is an object. Strict tools and structured
answers are compiled into a grammar, which supports few keywords, closes every object
and has limits for each request.

Source: https://platform.claude.com/docs/en/build-with-claude/structured-outputs
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from llm.wire.json_schema.reduction import Schema, cut_down
from llm.wire.json_schema.strict import UNENFORCED as STRICT_UNENFORCED

MAX_STRICT = 20  # schemas in one request
MAX_OPTIONAL = 24  # properties that are not required, in all schemas together
MAX_UNIONS = 16  # `anyOf` and lists of types, in all schemas together

_KEYWORDS = frozenset(
    {
        "additionalProperties",
        "anyOf",
        "default",
        "description",
        "enum",
        "format",
        "items",
        "minItems",
        "properties",
        "required",
        "title",
        "type",
    }
)
_FORMATS = frozenset(
    {
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "time",
        "uri",
        "uuid",
    }
)
#: Constraints that no grammar enforces.
UNENFORCED = STRICT_UNENFORCED | {
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maximum",
    "minimum",
    "multipleOf",
    "pattern",
}
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")


@dataclass(slots=True)
class Allowance:
    """How much of the grammar's limits one request's schemas have used."""

    schemas: int = 0
    optional: int = 0
    unions: int = 0

    def try_add(self, schema: Schema) -> bool:
        """Count `schema` in if it fits; returns whether it does."""
        optional, unions = self.optional, self.unions
        for part in _parts(schema):
            optional += len(part.get("properties") or ()) - len(
                part.get("required") or ()
            )
            unions += "anyOf" in part or isinstance(part.get("type"), list)
        if self.schemas >= MAX_STRICT or optional > MAX_OPTIONAL or unions > MAX_UNIONS:
            return False
        self.schemas, self.optional, self.unions = self.schemas + 1, optional, unions
        return True


def to_grammar_schema(schema: Mapping[str, Any]) -> Schema | None:
    """`schema` for a grammar; None if it has objects with arbitrary properties.

    Such objects, and recursive schemas, would accept nothing but an empty object.
    """
    cut = cut_down(schema, _KEYWORDS)
    if any(_is_open(part) for part in _parts(cut)):
        return None
    closed: Schema = _close(cut)
    return closed


def object_schema(schema: Mapping[str, Any]) -> Schema:
    """`schema` with an object as its root, which every tool requires.

    Alternatives at the root become one object with the properties of all; the lost
    constraints are added to the description.
    """
    root = _resolve_root(dict(schema))
    lost = {name: root.pop(name) for name in _ALTERNATIVES if name in root}
    for name, variants in lost.items():
        root = _unite(root, [_look_up(root, each) for each in variants], name)
    root["type"] = "object"
    root.setdefault("properties", {})
    return _add_note(root, lost)


def _is_open(part: Schema) -> bool:
    return (
        part.get("type", "object") == "object"
        and not {"anyOf", "enum"} & part.keys()
        and not part.get("properties")
        and part.get("additionalProperties") is not False
    )


def _close(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_close(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    result: Schema = {}
    lost: Schema = {}
    for name, value in schema.items():
        match name:
            case "properties":
                result[name] = {key: _close(each) for key, each in value.items()}
            case "anyOf" | "items":
                result[name] = _close(value)
            case "format" if value not in _FORMATS:
                lost[name] = value
            case "minItems" if value not in (0, 1):
                lost[name] = value
            case "additionalProperties":
                pass
            case _:
                result[name] = value
    if "properties" in result or result.get("type") == "object":
        result |= {"type": "object", "additionalProperties": False}
        result.setdefault("properties", {})
    return _add_note(result, lost)


def _add_note(schema: Schema, lost: Schema) -> Schema:
    if not lost:
        return schema
    note = f"({orjson.dumps(lost).decode()})"
    return {
        **schema,
        "description": f"{schema.get('description') or ''} {note}".strip(),
    }


def _unite(root: Schema, variants: list[Schema], name: str) -> Schema:
    properties = dict(root.get("properties") or {})
    for variant in variants:
        properties = {**(variant.get("properties") or {}), **properties}
    wanted = [set(variant.get("required") or ()) for variant in variants or [{}]]
    join = set.union if name == "allOf" else set.intersection
    needed = {*(root.get("required") or ()), *join(*wanted)}
    required = [key for key in properties if key in needed]
    return {**root, "properties": properties, "required": required}


def _resolve_root(schema: Schema) -> Schema:
    """Replace a root that is only a reference by its target."""
    seen: set[Any] = set()
    while (pointer := schema.pop("$ref", None)) is not None and pointer not in seen:
        seen.add(pointer)
        schema = {**_at(schema, pointer), **schema}
    return schema


def _look_up(root: Schema, variant: Any) -> Schema:
    if not isinstance(variant, dict):
        return {}
    return _at(root, variant["$ref"]) if "$ref" in variant else variant


def _at(root: Schema, pointer: str) -> Schema:
    """The target of "#/$defs/Name"; {} if there is none."""
    found: Any = root
    for step in pointer.removeprefix("#").strip("/").split("/"):
        found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _parts(schema: Any) -> Iterator[Schema]:
    """Every schema inside `schema`, itself first."""
    if not isinstance(schema, dict):
        return
    yield schema
    inside = [*(schema.get("properties") or {}).values(), *(schema.get("anyOf") or ())]
    for each in [*inside, schema.get("items")]:
        yield from _parts(each)
