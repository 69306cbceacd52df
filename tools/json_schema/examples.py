"""Example arguments for a JSON Schema, to prefill a form. Pure.

A value comes from the schema's `const`, its examples, its default or its enum, in this
order; without these, from its type, format and limits. A `pattern` is ignored, so an
example may be invalid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

from llm.wire.json_pointer import steps_of
from tools.json_schema.arguments import why_invalid

MAX_DEPTH = 6  # levels of nested objects and arrays
MAX_LENGTH = 200  # characters of a text, or elements of an array
MAX_VALUES = 500  # of the whole example

_TEXTS: Mapping[str, str] = {
    "date": "2026-01-31",
    "date-time": "2026-01-31T12:00:00Z",
    "duration": "PT1H",
    "email": "ada@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "time": "12:00:00Z",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
}


def example_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """An object with the required properties and those that have example values."""
    if why_invalid(parameters):  # an MCP server's schema may be of any shape
        return {}
    example = _ExampleBuilder(parameters).build(parameters, MAX_DEPTH)
    return example if isinstance(example, dict) else {}


class _ExampleBuilder:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._values = 0

    def build(self, schema: Any, depth: int) -> Any:
        self._values += 1
        if not isinstance(schema, Mapping) or depth < 0 or self._is_full:
            return None
        schema = self._resolve(schema, depth)
        for value in _find_example_values(schema):
            return value
        for name in ("anyOf", "oneOf"):
            for branch in schema.get(name) or ():
                if self._type(branch) != "null":
                    return self.build(branch, depth - 1)
        match _type_of(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer" | "number" as kind:
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return True
            case "null":
                return None
        return _text(schema)

    @property
    def _is_full(self) -> bool:
        """A schema of some bytes may name itself many times at each level."""
        return self._values > MAX_VALUES

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        found: list[Any] = []
        count = _limit(schema, "minItems", 1)
        items = schema.get("items", {"type": "string"})
        while len(found) < count and not self._is_full:
            found.append(self.build(items, depth - 1))
        return found

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = schema.get("required") or ()
        return {
            name: self.build(each, depth - 1)
            for name, each in properties.items()
            if not self._is_full
            and (
                name in required
                or (isinstance(each, Mapping) and any(_find_example_values(each)))
            )
        }

    def _type(self, branch: Any) -> Any:
        return (
            self._resolve(branch, 1).get("type") if isinstance(branch, Mapping) else ""
        )

    def _resolve(self, schema: Mapping[str, Any], depth: int) -> Mapping[str, Any]:
        """The schema with its `$ref` and its `allOf` merged into it."""
        self._values += 1
        parts = list(schema.get("allOf") or ())
        if isinstance(ref := schema.get("$ref"), str):
            parts.append(self._look_up(ref))
        whole = {key: v for key, v in schema.items() if key not in ("$ref", "allOf")}
        for part in parts if depth > 0 else ():
            if isinstance(part, Mapping) and not self._is_full:
                whole = _merge(whole, self._resolve(part, depth - 1))
        return whole

    def _look_up(self, ref: str) -> Any:
        found: Any = self._root
        for name in steps_of(ref):
            found = found.get(name) if isinstance(found, Mapping) else None
        return found if ref.startswith("#") else None


def _merge(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**other, **one}
    if "properties" in merged:
        theirs, ours = other.get("properties") or {}, one.get("properties") or {}
        merged["properties"] = {**theirs, **ours}
    if "required" in merged:
        merged["required"] = [*one.get("required", ()), *other.get("required", ())]
    return merged


def _find_example_values(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the values that the schema itself names, the best first."""
    if "const" in schema:
        yield schema["const"]
    if isinstance(examples := schema.get("examples"), list):
        yield from examples
    for name in ("example", "default"):
        if name in schema:
            yield schema[name]
    if "enum" in schema:
        yield from schema["enum"]


def _type_of(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((each for each in kind if each != "null"), "null")
    if kind is None and "properties" in schema:
        return "object"
    if kind is None and "items" in schema:
        return "array"
    return str(kind)


def _number(schema: Mapping[str, Any], *, whole: bool) -> float:
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    step = schema.get("multipleOf", 1 if whole else 0.5)
    try:
        number = _fit(1, low, high, step, schema)
    except OverflowError:  # of integers that no float can hold
        return 1
    if not isfinite(number):
        return 1
    return int(number) if whole else number


def _fit(
    number: float, low: Any, high: Any, step: float, schema: Mapping[str, Any]
) -> float:
    """The number next to `number` that is within the limits."""
    if low is not None and number <= low:
        number = low if "minimum" in schema else low + step
    if high is not None and number >= high:
        number = high if "maximum" in schema else high - step
    if "multipleOf" in schema:
        number = -(-number // step) * step
    return number


def _text(schema: Mapping[str, Any]) -> str:
    text = _TEXTS.get(schema.get("format", ""), "text")
    padded = text.ljust(_limit(schema, "minLength", 0), "x")
    return padded[: _limit(schema, "maxLength", MAX_LENGTH)]


def _limit(schema: Mapping[str, Any], name: str, default: int) -> int:
    """A limit of the schema, which may be written as 2.0; at most MAX_LENGTH."""
    return max(int(min(schema.get(name, default), MAX_LENGTH)), 0)
