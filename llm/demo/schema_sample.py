"""Make a small instance of a JSON Schema, for the demo's structured output. Pure.

Schema in, JSON value out. Objects get their required properties only, arrays one entry
if that is allowed, choices their first branch with a finite instance. A `$ref` is never
entered inside itself, so a recursive schema has a finite instance.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from llm.wire.json_pointer import steps_of
from llm.wire.json_schema.validation import compile_schema

Schema = Mapping[str, Any] | bool

MAX_DEPTH = 40  # levels of nesting; strict structured output allows 10
MAX_VALUES = 10_000  # schemas visited for one sample

_FORMATS = {
    "date-time": "2026-01-01T12:00:00Z",
    "date": "2026-01-01",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "demo@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
#: Strings that are tried in turn for a `pattern`.
_CANDIDATES = ["demo", "Demo", "DEMO", "a", "A", "0", "1", "12", "123", "1234", "12345"]
_BOUNDS: dict[str, Callable[[float, float], bool]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}


class Endless(ValueError):
    """The schema has no instance of a reasonable size."""


def sample(schema: Schema) -> Any:
    """Raises Endless if every instance is infinitely deep or too large."""
    return _Sampler(schema).value(schema, frozenset(), 0)


class _Sampler:
    def __init__(self, root: Schema) -> None:
        self._root = root
        self._left = MAX_VALUES

    def value(self, schema: Schema, refs: frozenset[str], depth: int) -> Any:
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            raise Endless("the schema asks for too much.")
        if not isinstance(schema, Mapping):
            return "demo"
        match schema:
            case {"const": constant}:
                return constant
            case {"enum": [first, *_]}:
                return first
            case {"$ref": str(ref)}:
                if ref in refs:
                    raise Endless(f"the schema at {ref!r} needs itself.")
                return self.value(self._find(ref), refs | {ref}, depth + 1)
            case {"anyOf": [*branches]} | {"oneOf": [*branches]} if branches:
                return self._first(_join_branches(schema, branches), refs, depth)
            case {"allOf": [*parts]}:
                return self.value(self._merge(schema, parts), refs, depth + 1)
            case {"type": [*types]}:
                wanted = [t for t in types if t != "null"] or ["null"]
                branches = [{**schema, "type": type} for type in wanted]
                if "null" in types:
                    branches.append({"type": "null"})
                return self._first(branches, refs, depth)
        return self._value_of_type(schema, refs, depth)

    def _value_of_type(
        self, schema: Mapping[str, Any], refs: frozenset[str], depth: int
    ) -> Any:
        type = schema.get("type") or _guess_type(schema)
        match type:
            case "object":
                return self._object(schema, refs, depth)
            case "array":
                return self._array(schema, refs, depth)
            case "integer" | "number":
                return _number(schema, whole=type == "integer")
            case "boolean":
                return True
            case "null":
                return None
        return _string(schema)

    def _object(
        self, schema: Mapping[str, Any], refs: frozenset[str], depth: int
    ) -> dict[str, Any]:
        properties = _mapping(schema.get("properties"))
        more = schema.get("additionalProperties", True)
        required = [n for n in _list(schema.get("required")) if isinstance(n, str)]
        return {
            name: self.value(properties.get(name, more), refs, depth + 1)
            for name in required
        }

    def _array(
        self, schema: Mapping[str, Any], refs: frozenset[str], depth: int
    ) -> list[Any]:
        least = _count(schema.get("minItems"), 0)
        first = _list(schema.get("prefixItems"))
        size = min(max(least, len(first), 1), _count(schema.get("maxItems"), 1_000))
        schemas = [*first, *[schema.get("items", True)] * size][:size]
        try:
            return [self.value(entry, refs, depth + 1) for entry in schemas]
        except Endless:
            if least:
                raise
            return []

    def _first(self, branches: list[Schema], refs: frozenset[str], depth: int) -> Any:
        """A value of the first branch that has a finite instance."""
        problem = Endless("no branch has an instance.")
        for branch in branches:
            try:
                return self.value(branch, refs, depth + 1)
            except Endless as exc:
                problem = exc
        raise problem

    def _merge(self, schema: Mapping[str, Any], parts: list[Schema]) -> Schema:
        """Merge `allOf` into one schema, with the properties of all parts."""
        merged = {key: value for key, value in schema.items() if key != "allOf"}
        for part in parts:
            if isinstance(part, Mapping) and isinstance(part.get("$ref"), str):
                part = self._find(part["$ref"])
            if not isinstance(part, Mapping):
                continue
            properties = _mapping(merged.get("properties"))
            required = [*_list(merged.get("required")), *_list(part.get("required"))]
            merged = {**merged, **part}
            merged["properties"] = {**properties, **_mapping(part.get("properties"))}
            merged["required"] = list(dict.fromkeys(map(str, required)))
        return merged

    def _find(self, ref: str) -> Schema:
        found: Any = self._root
        for step in steps_of(ref):
            found = found.get(step) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping | bool) else True


def _join_branches(schema: Mapping[str, Any], branches: list[Any]) -> list[Schema]:
    """Each branch merged with the keywords beside `anyOf` or `oneOf`."""
    beside = {
        k: v for k, v in schema.items() if k in ("type", "properties", "required")
    }
    return [{**beside, **b} if isinstance(b, Mapping) else b for b in branches]


def _guess_type(schema: Mapping[str, Any]) -> str:
    """The type that the other keywords of a schema without `type` suggest."""
    if "properties" in schema or "required" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    if "minimum" in schema or "maximum" in schema or "multipleOf" in schema:
        return "number"
    return "string"


def _string(schema: Mapping[str, Any]) -> str:
    text = _FORMATS.get(str(schema.get("format")), "demo")
    if isinstance(pattern := schema.get("pattern"), str):
        return _matching(pattern, text)
    shortest = _count(schema.get("minLength"), 0)
    longest = _count(schema.get("maxLength"), 1_000_000)
    return text.ljust(min(shortest, 1_000), "o")[:longest]


def _matching(pattern: str, otherwise: str) -> str:
    """A candidate that matches `pattern`, else `otherwise`, which may not match."""
    # The validator's regex engine never takes exponential time, as `re` may.
    try:
        fits = compile_schema({"type": "string", "pattern": pattern}).is_valid
    except ValueError:
        return otherwise
    return next((text for text in [otherwise, *_CANDIDATES] if fits(text)), otherwise)


def _number(schema: Mapping[str, Any], *, whole: bool) -> int | float:
    """Zero if it is valid, else a number near one of the bounds."""
    step = _float(schema.get("multipleOf")) or (1.0 if whole else 0.0)
    bounds = [b for name in _BOUNDS if (b := _float(schema.get(name))) is not None]
    candidates = [0.0, sum(bounds) / len(bounds) if bounds else 0.0]
    for bound in bounds:
        near = _at_step(bound, step)
        candidates += [near, near + (step or 1.0), near - (step or 1.0)]
    value = next((n for n in candidates if _fits(n, schema, step)), candidates[0])
    return int(value) if abs(value) < 2**53 and value.is_integer() else value


def _at_step(bound: float, step: float) -> float:
    """The nearest multiple of `step` that is not above `bound`."""
    try:
        return math.floor(bound / step) * step if step else bound
    except OverflowError:
        return bound


def _fits(number: float, schema: Mapping[str, Any], step: float) -> bool:
    within = all(
        fits(number, bound)
        for name, fits in _BOUNDS.items()
        if (bound := _float(schema.get(name))) is not None
    )
    return within and (not step or number % step == 0)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _count(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and value >= 0 else otherwise


def _float(value: Any) -> float | None:
    """None if `value` is not a number. Booleans do not count."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
