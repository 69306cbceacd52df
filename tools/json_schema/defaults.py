"""The arguments of a call with the defaults of what the model left out. Pure.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llm.wire.json_schema.recursion import at

_MAX_REFERENCES = 10  # that lead to one another


def fill_defaults(
    parameters: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments with the `default` of each property that is not among them, at each
    level. Branches (`anyOf` and the like) are not entered."""
    filled: dict[str, Any] = _fill(parameters, parameters, arguments)
    return filled


def _fill(root: Any, schema: Any, value: Any) -> Any:
    match _resolve(root, schema):
        case {"properties": dict(properties)} if isinstance(value, Mapping):
            defaults = {
                name: each["default"]
                for name, each in properties.items()
                if isinstance(each, Mapping) and "default" in each
            }
            given = {n: _fill(root, properties.get(n), v) for n, v in value.items()}
            return {**defaults, **given}
        case {"items": dict(items)} if isinstance(value, list):
            return [_fill(root, items, each) for each in value]
    return value


def _resolve(root: Any, schema: Any) -> Any:
    for _ in range(_MAX_REFERENCES):
        match schema:
            case {"$ref": str(ref)}:
                schema = at(root, ref)
            case _:
                break
    return schema
