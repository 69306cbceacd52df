"""Declarations of functions' arguments for generateContent.

In: the JSON Schema of a function's arguments. Out: `parameters`, in Google's subset of
OpenAPI's schemas, which every server of this API reads; or, for schemas beyond that
subset, `parametersJsonSchema`, which not all servers read.

The subset is narrower than its documentation: objects need properties, arrays `items`,
strings know two formats, and required properties must be declared. Anything else is
refused with a 400.

Source: https://ai.google.dev/api/caching#Schema
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm.wire.json_schema.reduction import cut_down
from llm.wire.json_schema.strict import UNENFORCED as STRICT_UNENFORCED

Schema = dict[str, Any]

#: Keywords that `parametersJsonSchema` and `responseJsonSchema` support.
SCHEMA_KEYWORDS = frozenset(
    {
        "additionalProperties",
        "anyOf",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "prefixItems",
        "properties",
        "propertyOrdering",
        "required",
        "title",
        "type",
    }
)
#: Constraints that are lost on the way.
UNENFORCED = (
    STRICT_UNENFORCED
    | {"exclusiveMaximum", "exclusiveMinimum", "multipleOf", "pattern"}
) - SCHEMA_KEYWORDS
_OPENAPI_KEYWORDS = SCHEMA_KEYWORDS - {"additionalProperties", "prefixItems"}
_FORMATS = {
    "integer": frozenset({"int32", "int64"}),
    "number": frozenset({"double", "float"}),
    "string": frozenset({"date-time", "enum"}),
}
#: Keywords of an object that name no arguments.
_NAMELESS = frozenset({"$schema", "description", "title", "type"})
_TYPES = frozenset({"array", "boolean", "integer", "number", "object", "string"})


class _NotInSubset(Exception):
    """The schema cannot be expressed in OpenAPI's subset."""


def arguments_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The field that declares the arguments; {} if the schema names none.

    A bare `additionalProperties: true` names none: it is what JSON Schema assumes
    where nothing is written.

    Raises BadRequest if the schema is too large.
    """
    if not parameters.keys() - _NAMELESS:
        return {}
    cut = _unite(cut_down(_with_patterns(parameters), SCHEMA_KEYWORDS))
    if not cut.get("properties") and not isinstance(
        cut.get("additionalProperties"), dict
    ):
        return {}
    schema = {"type": "object", **cut}
    try:
        return {"parameters": _in_openapi(schema)}
    except _NotInSubset:
        return {"parametersJsonSchema": schema}


def _with_patterns(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """`parameters`, whose properties by pattern may have any name: Google has no word
    for patterns, so the description has them."""
    patterns = parameters.get("patternProperties")
    if not isinstance(patterns, Mapping) or not patterns:
        return parameters
    allowed = [*patterns.values(), parameters.get("additionalProperties")]
    schemas = [each for each in map(_as_schema, allowed) if isinstance(each, dict)]
    if not schemas:
        return parameters
    return {**parameters, "additionalProperties": _any_of(schemas)}


def _as_schema(value: Any) -> Any:
    return {} if value is True else value


def _unite(schema: Schema) -> Schema:
    """One object with the properties of all alternatives at the root, which must be an
    object; the description says what belongs together."""
    variants = schema.get("anyOf")
    if not isinstance(variants, list):
        return schema
    each = [_unite(variant) for variant in variants if _is_object(variant)]
    root = {name: value for name, value in schema.items() if name != "anyOf"}
    united: dict[str, list[Any]] = {}
    for variant in each:
        for name, value in _properties(variant).items():
            if value not in united.setdefault(name, []):
                united[name].append(value)
    properties = {name: _any_of(values) for name, values in united.items()}
    if properties := properties | _properties(root):
        root["properties"] = properties
    others = [v["additionalProperties"] for v in each if "additionalProperties" in v]
    if others := [other for other in others if isinstance(other, dict)]:
        root.setdefault("additionalProperties", _any_of(others))
    return root | _required(root, each) | _note(root, each)


def _is_object(schema: Schema) -> bool:
    kinds = schema.get("type", "object")
    return kinds == "object" or (isinstance(kinds, list) and "object" in kinds)


def _any_of(schemas: list[Any]) -> Any:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _properties(schema: Schema) -> Schema:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _names(schema: Schema) -> list[str]:
    """The required properties; a client may write anything there."""
    required = schema.get("required")
    names = required if isinstance(required, list) else ()
    return [name for name in names if isinstance(name, str)]


def _required(root: Schema, variants: list[Schema]) -> Schema:
    """What is required by the root, or by every alternative."""
    wanted = [set(_names(variant)) for variant in variants or [{}]]
    needed = {*_names(root), *set.intersection(*wanted)}
    required = [name for name in _properties(root) if name in needed]
    return {"required": required} if required else {}


def _note(root: Schema, variants: list[Schema]) -> Schema:
    all_names = [", ".join(_names(v) or _properties(v)) for v in variants]
    sets = list(dict.fromkeys(filter(None, all_names)))
    if len(sets) < 2:
        return {}
    note = f"(one of these sets of arguments: {'; or '.join(sets)})"
    return {"description": f"{root.get('description') or ''} {note}".strip()}


def _in_openapi(schema: Any) -> Schema:
    """Raises _NotInSubset."""
    if not isinstance(schema, dict):
        raise _NotInSubset
    result = dict(schema)
    if result.get("additionalProperties") is False:
        # Models do not add undeclared arguments, and the arguments are validated
        # anyway.
        del result["additionalProperties"]
    if result.keys() - _OPENAPI_KEYWORDS:
        raise _NotInSubset
    result |= _kind(result)
    _check(result)
    if "properties" in result:
        properties = result["properties"].items()
        result["properties"] = {name: _in_openapi(each) for name, each in properties}
    if "items" in result:
        result["items"] = _in_openapi(result["items"])
    if "anyOf" in result:
        result["anyOf"] = [_in_openapi(each) for each in result["anyOf"]]
    return result


def _kind(schema: Schema) -> Schema:
    """The `type` as one word, and `nullable`."""
    kinds = schema.get("type")
    if kinds is None and "anyOf" in schema:
        return {}
    if isinstance(kinds, list) and len(kinds) == 2 and "null" in kinds:
        [kinds] = [kind for kind in kinds if kind != "null"] or ["null"]
        return _one(kinds) | {"nullable": True}
    return _one(kinds)


def _one(kind: Any) -> Schema:
    if not isinstance(kind, str) or kind not in _TYPES:
        raise _NotInSubset
    return {"type": kind}


def _check(schema: Schema) -> None:
    kind, properties = schema.get("type"), schema.get("properties")
    if kind == "object" and not (isinstance(properties, dict) and properties):
        raise _NotInSubset
    if kind == "array" and "items" not in schema:
        raise _NotInSubset
    if set(schema.get("required") or ()) - set(properties or ()):
        raise _NotInSubset
    if "format" in schema and schema["format"] not in _FORMATS.get(kind or "", ()):
        raise _NotInSubset
    if not all(schema.get("enum") or ()):
        raise _NotInSubset  # null and "" are not allowed as values
    if not isinstance(schema.get("anyOf", []), list):
        raise _NotInSubset
