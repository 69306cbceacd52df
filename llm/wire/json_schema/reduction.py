"""Reduction of a JSON Schema to the keywords that a provider supports.

In: any JSON Schema. Out: one that uses only `keywords` and accepts at least the same
values: references are expanded; `const`, `oneOf` and `allOf` become common keywords;
unsupported constraints are added to `description`, where the model reads them. Results
are validated against the original schema, so only the provider's own enforcement is
lost.

Schemas come from API clients, so the size of the expanded schema is limited. Results
are cached by the schema's JSON, because each call of a model repeats all its tools: do
not change them.

Source: https://json-schema.org/draft/2020-12/json-schema-validation
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

from llm.errors import BadRequest
from llm.wire.json_pointer import is_index, steps_of

Schema = dict[str, Any]

_MAX_NODES = 5_000  # schemas inside the expanded one
_MAX_DEPTH = 64
_MAX_NOTE = 200  # characters of one constraint
#: Keywords without information for a model.
_SILENT = frozenset({"$anchor", "$comment", "$defs", "$id", "$schema", "definitions"})


_MAX_CACHED = 16 * 1024  # bytes of a schema as JSON


def cut_down(schema: Any, keywords: frozenset[str]) -> Schema:
    """`schema` with only these `keywords`. Raises BadRequest if it is too large."""
    encoded = _encode(schema)
    if not 0 < len(encoded) <= _MAX_CACHED:
        return _Cutter(schema, keywords).cut(schema, refs=(), depth=0)
    return _cut_down(encoded, keywords)


@lru_cache(maxsize=500)
def _cut_down(encoded: bytes, keywords: frozenset[str]) -> Schema:
    schema = orjson.loads(encoded)
    return _Cutter(schema, keywords).cut(schema, refs=(), depth=0)


def without_refs(schema: Any) -> Any:
    """`schema` with its references expanded, and nothing else changed.

    A recursive reference becomes any value of its type. Raises BadRequest if the schema
    is too large.
    """
    encoded = _encode(schema)
    if encoded and b"$ref" not in encoded:
        return schema
    return _Inliner(schema, frozenset()).inline(schema, refs=(), depth=0)


def _encode(schema: Any) -> bytes:
    """The schema as JSON; b"" if it has a value that JSON cannot represent."""
    try:
        return orjson.dumps(schema, default=dict)
    except (TypeError, ValueError):  # of orjson, of `dict`
        return b""


@dataclass(frozen=True, slots=True)
class _Part:
    """A schema inside one that was merged into another, and the references being
    expanded there."""

    schema: Any
    refs: tuple[str, ...]


class _Cutter:
    def __init__(self, root: Any, keywords: frozenset[str]) -> None:
        self._root = root
        self._keywords = keywords
        self._nodes = 0

    def cut(self, schema: Any, refs: tuple[str, ...], depth: int) -> Schema:
        """`refs` are the references being expanded; a repeated one is recursive."""
        if isinstance(schema, _Part):
            schema, refs = schema.schema, schema.refs
        if not isinstance(schema, Mapping):
            return _nothing() if schema is False else {}
        whole = self._expand(schema, refs, depth)
        cut: Schema = {}
        notes: list[str] = []
        for name, value in whole.items():
            if name in self._keywords:
                cut[name] = self._value(name, value, refs, depth + 1)
            elif name not in _SILENT:
                notes.append(_note(name, value))
        notes += _loosen_enum(cut)
        if notes:
            description = str(cut.get("description") or "")
            cut["description"] = f"{description} ({'; '.join(notes)})".strip()
        return cut

    def _value(self, name: str, value: Any, refs: tuple[str, ...], depth: int) -> Any:
        match name:
            case "properties" if isinstance(value, Mapping):
                return {key: self.cut(v, refs, depth) for key, v in value.items()}
            case "anyOf" | "prefixItems" if isinstance(value, list):
                return [self.cut(v, refs, depth) for v in value]
            case "additionalProperties" if isinstance(value, bool):
                return value
            case "items" | "additionalProperties":
                return self.cut(value, refs, depth)
        return value

    def _expand(
        self, schema: Mapping[str, Any], refs: tuple[str, ...], depth: int
    ) -> Schema:
        """`schema` without `$ref`, `allOf`, `oneOf` and `const` at its top level."""
        self._nodes += 1
        if self._nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise BadRequest("A JSON Schema is too large for this model.")
        whole = dict(schema)
        parts: list[_Part] = []
        if (ref := whole.pop("$ref", None)) is not None:
            target = self._target(ref)
            end = _recursion_end(target) if ref in refs else target
            parts.append(_Part(end, (*refs, ref)))
        parts += [_Part(each, refs) for each in _list(whole.pop("allOf", None))]
        for part in parts:
            if isinstance(part.schema, Mapping):
                deeper = self._expand(part.schema, part.refs, depth + 1)
                whole = _merge(whole, self._with_refs(deeper, part.refs))
        return _modernize(whole)

    def _with_refs(self, schema: Schema, refs: tuple[str, ...]) -> Schema:
        """`schema`, whose inner schemas remember `refs`: those of the schema that it is
        merged into expand others."""
        return {
            name: _scope(name, value, refs) if name in self._keywords else value
            for name, value in schema.items()
        }

    def _target(self, ref: Any) -> Any:
        """The target of a reference inside the schema; {} for any other reference."""
        found: Any = self._root
        if not isinstance(ref, str) or not ref.startswith("#"):
            return {}
        for step in steps_of(ref):
            if isinstance(found, list) and is_index(step, found):
                found = found[int(step)]
            elif isinstance(found, Mapping) and step in found:
                found = found[step]
            else:
                return {}
        return found


_DEFINED = ("$defs", "definitions")
#: Keywords whose values hold no schemas.
_VALUES = frozenset({"const", "default", "enum", "examples", "required"})
#: Keywords whose values hold schemas by arbitrary names.
_NAMED = frozenset({"properties", "patternProperties", "dependentSchemas"})


class _Inliner(_Cutter):
    def inline(self, schema: Any, refs: tuple[str, ...], depth: int) -> Any:
        if isinstance(schema, list):
            return [self.inline(each, refs, depth) for each in schema]
        if not isinstance(schema, Mapping):
            return schema
        self._nodes += 1
        if self._nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise BadRequest("A JSON Schema is too large for this model.")
        whole = {k: v for k, v in schema.items() if k not in _DEFINED}
        if isinstance(ref := whole.pop("$ref", None), str):
            target = self._target(ref)
            target = _recursion_end(target) if ref in refs else target
            whole, refs = {**_dict(target), **whole}, (*refs, ref)
            if "$ref" in whole:
                return self.inline(whole, refs, depth + 1)
            whole = {k: v for k, v in whole.items() if k not in _DEFINED}
        return {
            name: self._inline_value(name, value, refs, depth + 1)
            for name, value in whole.items()
        }

    def _inline_value(
        self, name: str, value: Any, refs: tuple[str, ...], depth: int
    ) -> Any:
        if name in _VALUES:
            return value
        if name in _NAMED and isinstance(value, Mapping):
            return {key: self.inline(v, refs, depth) for key, v in value.items()}
        return self.inline(value, refs, depth)


def _scope(name: str, value: Any, refs: tuple[str, ...]) -> Any:
    match name:
        case "properties" if isinstance(value, Mapping):
            return {key: _part(each, refs) for key, each in value.items()}
        case "anyOf" | "prefixItems" if isinstance(value, list):
            return [_part(each, refs) for each in value]
        case "items" | "additionalProperties" if isinstance(value, Mapping):
            return _part(value, refs)
    return value


def _part(schema: Any, refs: tuple[str, ...]) -> _Part:
    return schema if isinstance(schema, _Part) else _Part(schema, refs)


def _modernize(schema: Schema) -> Schema:
    """Replace keywords by widely supported ones."""
    if "oneOf" in schema:
        either = schema.pop("oneOf")
        schema.setdefault("anyOf", either)
    if "const" in schema:
        value = schema.pop("const")
        schema.setdefault("enum", [value])
    if isinstance(items := schema.get("items"), list):  # before draft 2020-12
        del schema["items"]
        schema.setdefault("prefixItems", items)
    return schema


def _merge(one: Schema, other: Schema) -> Schema:
    """Approximately the intersection: properties and requirements are merged."""
    both = {**other, **one}
    properties = {**_dict(other.get("properties")), **_dict(one.get("properties"))}
    if properties:
        both["properties"] = properties
    required = [*_list(other.get("required")), *_list(one.get("required"))]
    if required:
        both["required"] = list(dict.fromkeys(required))
    return both


def _loosen_enum(schema: Schema) -> list[str]:
    """Remove an enum of anything but strings; returns notes for the description."""
    values = schema.get("enum")
    if not isinstance(values, list):
        return []
    if all(isinstance(value, str) for value in values):
        schema.setdefault("type", "string")
        return []
    if all(isinstance(value, str) or value is None for value in values):
        return []
    del schema["enum"]
    return [_note("one of", values)]


def _recursion_end(schema: Any) -> Schema:
    """The end of a recursive expansion: any value of the right type."""
    return {"type": schema["type"]} if "type" in _dict(schema) else {}


def _nothing() -> Schema:
    return {"description": "(nothing is valid here)"}


def _note(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return f"{name}: {text[:_MAX_NOTE]}"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
