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
_TYPES = frozenset({"array", "boolean", "integer", "number", "object", "string"})


class _NotInSubset(Exception):
    """The schema cannot be expressed in OpenAPI's subset."""


def arguments_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The field that declares the arguments; {} if there are none.

    Raises BadRequest if the schema is too large.
    """
    refers = "$ref" in parameters or "allOf" in parameters
    if not refers and not parameters.get("properties"):
        return {}
    schema = {"type": "object", **cut_down(parameters, SCHEMA_KEYWORDS)}
    try:
        return {"parameters": _in_openapi(schema)}
    except _NotInSubset:
        return {"parametersJsonSchema": schema}


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
