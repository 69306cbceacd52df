"""JSON Schemas for strict structured output in OpenAI's formats.

In: the schema that a caller wants. Out: a schema that the host can compile, which
allows at least the same values apart from one difference: all properties are required,
so an optional one may be null instead of missing. `drop_added_nulls` undoes that in the
answer, which is then validated against the caller's own schema.

Source: https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm.errors import BadRequest
from llm.wire.json_schema.reduction import Schema, cut_down
from llm.wire.json_schema.validation import compile_schema

MAX_DEPTH = 10  # levels of nesting
MAX_PROPERTIES = 5000

_KEYWORDS = frozenset(
    {
        "additionalProperties",
        "anyOf",
        "description",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "multipleOf",
        "pattern",
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
        "uuid",
    }
)
#: Constraints that strict mode does not know.
UNENFORCED = frozenset(
    {
        "contains",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "maxContains",
        "maxLength",
        "maxProperties",
        "minContains",
        "minLength",
        "minProperties",
        "not",
        "patternProperties",
        "prefixItems",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    }
)
#: With these an `anyOf` restricts its variants further; hosts refuse that.
_BESIDE_ANY_OF = frozenset({"additionalProperties", "items", "properties", "required"})
#: Keywords whose values hold schemas by arbitrary names.
_NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_VALUES = ("const", "default", "enum", "examples", "required")


@dataclass(frozen=True, slots=True)
class StrictSchema:
    schema: Schema
    has_added_nulls: bool  # optional properties may be null in an answer


class _NotStrict(Exception):
    """The schema allows values that strict mode cannot describe."""


def to_strict_schema(schema: Mapping[str, Any]) -> StrictSchema | None:
    """`schema` for strict mode; None if it has objects with arbitrary properties, parts
    without a type, a root that is no object, or is too large."""
    try:
        cut = cut_down(schema, _KEYWORDS)
        if cut.get("type") != "object" or "anyOf" in cut or "enum" in cut:
            return None
        closer = _Closer()
        closed = closer.close(cut, depth=1)
    except (_NotStrict, BadRequest):
        return None
    return StrictSchema(closed, closer.has_added_nulls)


def find_keywords(schema: Any, keywords: frozenset[str]) -> set[str]:
    """Those of `keywords` that the schema uses, at any level."""
    if isinstance(schema, list):
        return {name for each in schema for name in find_keywords(each, keywords)}
    if not isinstance(schema, Mapping):
        return set()
    found = keywords & schema.keys()
    for name, value in schema.items():
        if name in _NAMED and isinstance(value, Mapping):
            found |= find_keywords(list(value.values()), keywords)
        elif name not in _VALUES:
            found |= find_keywords(value, keywords)
    return set(found)


class _Closer:
    def __init__(self) -> None:
        self.has_added_nulls = False
        self._properties = 0

    def close(self, schema: Schema, depth: int) -> Schema:
        if depth > MAX_DEPTH:
            raise _NotStrict
        new = _with_known_format(schema)
        if "anyOf" in new:
            if not _BESIDE_ANY_OF.isdisjoint(new):
                raise _NotStrict
            new.pop("type", None)  # each variant has its own
            # A choice within a choice is a level too: each one is tried by itself.
            inner = [self.close(s, depth + ("anyOf" in s)) for s in new["anyOf"]]
            return {**new, "anyOf": inner}
        if "type" not in new and "enum" in new:
            new["type"] = _types_of(new["enum"])
        types = _types(new)
        if not types:
            raise _NotStrict
        if "array" in types:
            if not isinstance(new.get("items"), Mapping):
                raise _NotStrict
            new["items"] = self.close(new["items"], depth + 1)
        if "object" in types:
            self._close_object(new, depth)
        return new

    def _close_object(self, new: Schema, depth: int) -> None:
        properties = new.get("properties") or {}
        closed = new.get("additionalProperties", not properties)
        self._properties += len(properties)
        if closed is not False or self._properties > MAX_PROPERTIES:
            raise _NotStrict
        required = new.get("required") or ()
        if not all(name in properties for name in required):
            raise _NotStrict
        new["properties"] = {
            name: self._property(part, depth, is_optional=name not in required)
            for name, part in properties.items()
        }
        new["required"] = list(properties)
        new["additionalProperties"] = False

    def _property(self, part: Schema, depth: int, *, is_optional: bool) -> Schema:
        closed = self.close(part, depth + 1)
        if not is_optional or accepts_null(closed):
            return closed
        self.has_added_nulls = True
        return _nullable(closed)


def _with_known_format(schema: Schema) -> Schema:
    form = schema.get("format")
    if form is None or form in _FORMATS:
        return dict(schema)
    new = {name: value for name, value in schema.items() if name != "format"}
    new["description"] = f"{new.get('description') or ''} (format: {form})".strip()
    return new


def _types(schema: Mapping[str, Any]) -> list[str]:
    kind = schema.get("type")
    return [kind] if isinstance(kind, str) else list(kind or ())


def _types_of(values: Sequence[str | None]) -> list[str]:
    """The types of an enum's values, of which `cut_down` leaves strings and null."""
    has_texts = any(value is not None for value in values)
    return [*(["string"] if has_texts else []), *(["null"] if None in values else [])]


def _nullable(schema: Schema) -> Schema:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "enum" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "type": [*_types(schema), "null"]}


def accepts_null(schema: Mapping[str, Any]) -> bool:
    """Whether the schema, which uses no references, allows null."""
    if "anyOf" in schema:
        return any(accepts_null(each) for each in schema["anyOf"])
    if "enum" in schema:
        return None in schema["enum"]
    types = _types(schema)
    return not types or "null" in types


# The answer


def drop_added_nulls(schema: Mapping[str, Any], value: Any) -> Any:
    """`value`, an answer to `to_strict_schema(schema)`, without the properties that are
    null only because strict mode requires all of them."""
    return _drop(cut_down(schema, _KEYWORDS), value)


def _drop(schema: Mapping[str, Any], value: Any) -> Any:
    if "anyOf" in schema:
        return next(_fitting(schema["anyOf"], value), value)
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [_drop(schema["items"], each) for each in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, Mapping):
        return value
    required = schema.get("required") or ()
    return {
        name: _drop(properties.get(name, {}), part)
        for name, part in value.items()
        if part is not None
        or name in required
        or accepts_null(properties.get(name, {}))
    }


def _fitting(schemas: list[Schema], value: Any) -> Iterator[Any]:
    """The value by each of the schemas that it fits without its added nulls. First come
    those that know all its names, as the host was allowed no others."""
    tried: dict[int, Any] = {}  # a second try would double the work at each level
    for restrict in (_without_unknown_names, dict):
        for number, schema in enumerate(schemas):
            if number not in tried:
                tried[number] = _drop(schema, value)
            if compile_schema(restrict(schema)).is_valid(tried[number]):
                yield tried[number]


def _without_unknown_names(schema: Schema) -> Schema:
    new = dict(schema)
    if "anyOf" in schema:
        new["anyOf"] = [_without_unknown_names(each) for each in schema["anyOf"]]
    if isinstance(items := schema.get("items"), Mapping):
        new["items"] = _without_unknown_names(dict(items))
    if isinstance(properties := schema.get("properties"), Mapping):
        new["properties"] = {
            name: _without_unknown_names(part) for name, part in properties.items()
        }
        new["additionalProperties"] = False
    return new
