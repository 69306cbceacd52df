"""Conversion of OpenAPI schemas to self-contained JSON Schema. Pure.

In: a schema of OpenAPI 3.0 or 3.1, which may refer to others in its document. Out: JSON
Schema 2020-12 with the referenced schemas, and only those, under `$defs`.

Source: https://spec.openapis.org/oas/v3.0.4#schema-object
Source: https://spec.openapis.org/oas/v3.1.1#schema-object
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from llm.wire.json_pointer import is_index, steps_of
from tools.errors import InvalidDocument

Schema = dict[str, Any]

MAX_NODES = 2_000  # schemas of one operation
MAX_FIELDS = 20_000  # names of a body, as often as they are merged
MAX_DEPTH = 40  # levels of nested schemas
MAX_REFERENCES = 20  # references in a chain

_COPIED_KEYWORDS = frozenset(
    {
        "const",
        "default",
        "description",
        "enum",
        "examples",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "format",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "multipleOf",
        "pattern",
        "required",
        "title",
        "type",
        "uniqueItems",
    }
)
_INSIDE_ONE = frozenset({"additionalProperties", "items", "not", "propertyNames"})
_INSIDE_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_INSIDE_MAP = frozenset({"patternProperties", "properties"})


class SchemaReader:
    """Converts the schemas of one operation; `defs` has the referenced schemas."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.defs: dict[str, Schema] = {}
        self._document = document
        self._names: dict[str, str] = {}  # of references
        self._nodes = 0
        self._fields = 0

    def resolve(self, value: Any) -> Any:
        """The target of a reference; any other value unchanged.

        Raises InvalidDocument.
        """
        for _ in range(MAX_REFERENCES):
            if not isinstance(value, Mapping) or "$ref" not in value:
                return value
            value = self._look_up(value["$ref"])
        raise InvalidDocument("its references are circular.")

    def read(self, schema: Any, depth: int = 0) -> Any:
        """Raises InvalidDocument."""
        self._nodes += 1
        if self._nodes > MAX_NODES or depth > MAX_DEPTH:
            raise InvalidDocument("its schema is too large.")
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            raise InvalidDocument("one of its schemas is not an object.")
        if "$ref" in schema:
            return self._reference(schema, depth)
        return _nullable(schema, self._keywords(schema, depth))

    def fields(self, schema: Any) -> Schema | None:
        """An object's `properties` and `required`, with those of its `allOf`.

        None if the schema is no plain object: alternatives, an array, a text.
        """
        whole = self.resolve(schema)
        self._count_fields(1)
        if not isinstance(whole, Mapping) or {"anyOf", "oneOf", "not"} & whole.keys():
            return None
        parts = [self.fields(part) for part in whole.get("allOf") or ()]
        own = {name: whole.get(name) for name in ("properties", "required")}
        found: Schema = {"properties": {}, "required": []}
        for part in [*parts, own]:
            if part is None:
                return None
            properties, required = part["properties"] or {}, part["required"] or []
            self._count_fields(len(properties) + len(required))
            found["properties"] |= properties
            found["required"] += required
        is_object = whole.get("type", "object") == "object"
        return found if is_object and found["properties"] else None

    def _count_fields(self, number: int) -> None:
        """A schema of some lines may merge another one any number of times."""
        self._fields += number
        if self._fields > MAX_FIELDS:
            raise InvalidDocument("its schema is too large.")

    def _reference(self, schema: Mapping[str, Any], depth: int) -> Schema:
        ref = schema["$ref"]
        target = self._look_up(ref)
        if ref not in self._names:
            name = self._names[ref] = self._new_name(ref)
            self.defs[name] = {}  # it may refer to itself
            self.defs[name] = self.read(target, depth + 1)
        read: Schema = {"$ref": f"#/$defs/{self._names[ref]}"}
        if isinstance(schema.get("description"), str):
            read["description"] = schema["description"]
        return read

    def _keywords(self, schema: Mapping[str, Any], depth: int) -> Schema:
        read: Schema = {}
        for name, value in schema.items():
            if name in _COPIED_KEYWORDS:
                read[name] = value
            elif name in _INSIDE_ONE:
                read[name] = self.read(value, depth + 1)
            elif name in _INSIDE_LIST and isinstance(value, list):
                read[name] = [self.read(each, depth + 1) for each in value]
            elif name in _INSIDE_MAP and isinstance(value, Mapping):
                read[name] = {
                    str(key): self.read(each, depth + 1)
                    for key, each in value.items()
                    if not _is_read_only(each)
                }
        if "example" in schema:
            read.setdefault("examples", [schema["example"]])
        if "required" in read and "properties" in read:
            properties = read["properties"]
            read["required"] = [name for name in read["required"] if name in properties]
        return _with_number_limits(read)

    def _look_up(self, ref: Any) -> Any:
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise InvalidDocument(f"it refers to another document, {ref!r:.100}.")
        found: Any = self._document
        for name in steps_of(ref):
            if isinstance(found, list) and is_index(name, found):
                found = found[int(name)]
            elif isinstance(found, Mapping) and name in found:
                found = found[name]
            else:
                raise InvalidDocument(
                    f"it refers to {ref!r:.100}, which does not exist."
                )
        return found

    def _new_name(self, ref: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_]+", "_", ref.rpartition("/")[2]) or "schema"
        name, number = base, 2
        while name in self.defs:
            name, number = f"{base}_{number}", number + 1
        return name


def _is_read_only(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("readOnly") is True


def _nullable(schema: Mapping[str, Any], read: Schema) -> Schema:
    """Replace `nullable` of OpenAPI 3.0 by JSON Schema's type null."""
    if schema.get("nullable") is not True:
        return read
    if isinstance(kind := read.get("type"), str):
        read["type"] = [kind, "null"]
        if "enum" in read and None not in read["enum"]:
            read["enum"] = [*read["enum"], None]
        return read
    return {"anyOf": [read, {"type": "null"}]} if "type" not in read else read


def _with_number_limits(read: Schema) -> Schema:
    """Replace the exclusive flags of OpenAPI 3.0 by JSON Schema's exclusive limits."""
    for flag, limit in (
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ):
        if isinstance(read.get(flag), bool):
            is_exclusive = read.pop(flag)
            if is_exclusive and limit in read:
                read[flag] = read.pop(limit)
    return read
