"""JSON Schema cut down to what a provider takes.

In: any JSON Schema. Out: one that uses only `keywords`, and admits at least what the
first one did: references are written out, `const`, `oneOf` and `allOf` become what
everybody knows, and what cannot be said is told in `description`, where the model reads
it. Results are validated against the schema as it was, so only the provider's help is
lost.

A schema comes from whoever calls our API, so its size written out is limited.

Source: https://json-schema.org/draft/2020-12/json-schema-validation
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from llm.errors import BadRequest
from llm.wire.json_pointer import steps_of

Schema = dict[str, Any]

_MAX_NODES = 5_000  # schemas inside the one that is written out
_MAX_DEPTH = 64
_MAX_NOTE = 200  # characters of one constraint
#: Keywords that say nothing a model should read.
_SILENT = frozenset({"$anchor", "$comment", "$defs", "$id", "$schema", "definitions"})


def cut_down(schema: Any, keywords: frozenset[str]) -> Schema:
    """`schema` in those `keywords`. Raises BadRequest where it is too large."""
    return _Cutter(schema, keywords).cut(schema, refs=(), depth=0)


def without_refs(schema: Any) -> Any:
    """`schema` with its references written out, and nothing else changed.

    One that recurs ends in anything of its type. Raises BadRequest where it is too
    large.
    """
    if "$ref" not in json.dumps(schema, default=str):
        return schema
    return _Inliner(schema, frozenset()).inline(schema, refs=(), depth=0)


class _Cutter:
    def __init__(self, root: Any, keywords: frozenset[str]) -> None:
        self._root = root
        self._keywords = keywords
        self._nodes = 0

    def cut(self, schema: Any, refs: tuple[str, ...], depth: int) -> Schema:
        """`refs` are those being written out here: one that comes again recurs."""
        if not isinstance(schema, Mapping):
            return _nothing() if schema is False else {}
        whole, refs = self._written_out(schema, refs, depth)
        cut: Schema = {}
        notes: list[str] = []
        for name, value in whole.items():
            if name in self._keywords:
                cut[name] = self._value(name, value, refs, depth + 1)
            elif name not in _SILENT:
                notes.append(_note(name, value))
        notes += _loosen_enum(cut)
        if notes:
            said = str(cut.get("description") or "")
            cut["description"] = f"{said} ({'; '.join(notes)})".strip()
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

    def _written_out(
        self, schema: Mapping[str, Any], refs: tuple[str, ...], depth: int
    ) -> tuple[Schema, tuple[str, ...]]:
        """`schema` without `$ref`, `allOf`, `oneOf` and `const` at its top."""
        self._nodes += 1
        if self._nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise BadRequest("A JSON Schema is too large for this model.")
        whole = dict(schema)
        parts: list[Any] = []
        if (ref := whole.pop("$ref", None)) is not None:
            target = self._target(ref)
            parts.append(_recurring(target) if ref in refs else target)
            refs = (*refs, ref)
        parts += _list(whole.pop("allOf", None))
        for part in parts:
            if isinstance(part, Mapping):
                deeper, refs = self._written_out(part, refs, depth + 1)
                whole = _both(whole, deeper)
        return _modern(whole), refs

    def _target(self, ref: Any) -> Any:
        """What a reference inside the schema points to; {} for any other."""
        found: Any = self._root
        if not isinstance(ref, str) or not ref.startswith("#"):
            return {}
        for step in steps_of(ref):
            if isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            elif isinstance(found, Mapping) and step in found:
                found = found[step]
            else:
                return {}
        return found


_DEFINED = ("$defs", "definitions")
#: What holds values and no schemas.
_VALUES = frozenset({"const", "default", "enum", "examples", "required"})
#: What holds schemas by names that mean nothing to us.
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
            target = _recurring(target) if ref in refs else target
            whole, refs = {**_dict(target), **whole}, (*refs, ref)
            if "$ref" in whole:
                return self.inline(whole, refs, depth + 1)
            whole = {k: v for k, v in whole.items() if k not in _DEFINED}
        return {
            name: self._inlined(name, value, refs, depth + 1)
            for name, value in whole.items()
        }

    def _inlined(self, name: str, value: Any, refs: tuple[str, ...], depth: int) -> Any:
        if name in _VALUES:
            return value
        if name in _NAMED and isinstance(value, Mapping):
            return {key: self.inline(v, refs, depth) for key, v in value.items()}
        return self.inline(value, refs, depth)


def _modern(schema: Schema) -> Schema:
    """In keywords that everybody knows."""
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


def _both(one: Schema, other: Schema) -> Schema:
    """What satisfies both, roughly: properties and requirements are put together."""
    both = {**other, **one}
    properties = {**_dict(other.get("properties")), **_dict(one.get("properties"))}
    if properties:
        both["properties"] = properties
    required = [*_list(other.get("required")), *_list(one.get("required"))]
    if required:
        both["required"] = list(dict.fromkeys(required))
    return both


def _loosen_enum(schema: Schema) -> list[str]:
    """Take an enum of anything but strings out; returns what is to be said of it."""
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


def _recurring(schema: Any) -> Schema:
    """Where writing out must end: anything of the right type."""
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
