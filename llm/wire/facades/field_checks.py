"""Composable checks of the values in a request body.

A check takes a value and its path (`messages[0].role`), and raises BadRequest that
names the path and the problem. The message quotes at most a short wrong keyword.
`schema_of` returns the JSON Schema of the values that a check accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import orjson

from llm.errors import BadRequest

Check = Callable[[Any, str], None]
Schema = dict[str, Any]

_MAX_QUOTED = 60  # characters of a wrong value in an error
_NULL: Schema = {"type": "null"}
_schemas: dict[Check, Schema] = {}


def accepts(schema: Schema) -> Callable[[Check], Check]:
    """Decorator that registers the schema of the values that a check accepts."""

    def register(check: Check) -> Check:
        _schemas[check] = schema
        return check

    return register


def schema_of(check: Check) -> Schema:
    return _schemas[check]


def object_of(checks: Mapping[str, Check], needed: Collection[str] = ()) -> Schema:
    """The schema of a `record`, or of a whole body."""
    properties = {
        name: schema_of(each) if name in needed else _or_null(schema_of(each))
        for name, each in checks.items()
    }
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": list(needed)} if needed else schema


def _or_null(schema: Schema) -> Schema:
    if not schema or None in schema.get("enum", ()):
        return schema
    if isinstance(kind := schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, _NULL]}


def wrong(where: str, problem: str) -> BadRequest:
    return BadRequest(f"{where}: {problem}", param=where)


def request_body(body: Any) -> None:
    """Check that `body` is an object that orjson can encode, like all later code.

    This refuses half surrogate pairs, numbers of hundreds of digits and excessive
    nesting.
    """
    if not isinstance(body, dict):
        raise BadRequest("The request must be a JSON object.")
    try:
        orjson.dumps(body)
    except TypeError as exc:
        problem = (
            "The request contains invalid text, a number that is too large, or too"
            " many levels."
        )
        raise BadRequest(problem) from exc


@accepts({})
def anything(value: Any, where: str) -> None:
    pass


@accepts({"type": "string"})
def string(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise wrong(where, "expected a string.")


@accepts({"type": "string", "minLength": 1})
def nonempty(value: Any, where: str) -> None:
    string(value, where)
    if not value:
        raise wrong(where, "must not be empty.")


@accepts({"type": "boolean"})
def boolean(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        raise wrong(where, "expected true or false.")


_MOST_EXACT = 2**53  # floats from there on stand for several numbers


def whole(value: Any) -> Any:
    """A whole number as an int: some clients send 50.0, as JSON Schema permits."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _MOST_EXACT:
        return int(value)
    return value


def integer(least: int | None = None, most: int | None = None) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(whole(value), int) or isinstance(value, bool):
            raise wrong(where, "expected a whole number.")
        _within(value, least, most, where)

    return accepts({"type": "integer", **_bounds(least, most)})(check)


def number(least: float | None = None, most: float | None = None) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise wrong(where, "expected a number.")
        _within(value, least, most, where)

    return accepts({"type": "number", **_bounds(least, most)})(check)


def _bounds(least: float | None, most: float | None) -> Schema:
    limits = {"minimum": least, "maximum": most}
    return {name: limit for name, limit in limits.items() if limit is not None}


def _within(value: float, least: float | None, most: float | None, where: str) -> None:
    if least is not None and not value >= least:
        raise wrong(where, f"must be at least {least:g}.")
    if most is not None and not value <= most:
        raise wrong(where, f"must be at most {most:g}.")


def word(*words: str) -> Check:
    """A check for one of these words."""

    def check(value: Any, where: str) -> None:
        string(value, where)
        if value not in words:
            known = ", ".join(words)
            raise wrong(where, f"{value[:_MAX_QUOTED]!r} is not one of {known}.")

    return accepts({"type": "string", "enum": list(words)})(check)


@accepts({"type": "object"})
def mapping(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise wrong(where, "expected an object.")


def record(checks: Mapping[str, Check], needed: Collection[str] = ()) -> Check:
    """An object; fields that are not `needed` may be null, others are allowed."""

    def check(value: Any, where: str) -> None:
        mapping(value, where)
        for name in needed:
            if value.get(name) is None:
                raise wrong(f"{where}.{name}", "missing.")
        for name, each in checks.items():
            if (member := value.get(name)) is not None:
                each(member, f"{where}.{name}")

    return accepts(object_of(checks, needed))(check)


def strict_record(checks: Mapping[str, Check], *others: str) -> Check:
    """An object with only these fields and `others`."""
    open_record = record(checks)

    def check(value: Any, where: str) -> None:
        open_record(value, where)
        for name in value:
            if name not in checks and name not in others:
                known = ", ".join(checks)
                raise wrong(f"{where}.{name[:_MAX_QUOTED]}", f"unknown; use {known}.")

    return accepts({**object_of(checks), "additionalProperties": False})(check)


def fields(
    body: Mapping[str, Any], checks: Mapping[str, Check], needed: Collection[str]
) -> None:
    """`record` for a request's own fields, whose paths have no prefix."""
    for name in needed:
        if body.get(name) is None:
            raise wrong(name, "missing.")
    for name, each in checks.items():
        if (member := body.get(name)) is not None:
            each(member, name)


def values(each: Check) -> Check:
    """An object with arbitrary names."""

    def check(value: Any, where: str) -> None:
        mapping(value, where)
        for name, member in value.items():
            each(member, f"{where}.{name[:_MAX_QUOTED]}")

    return accepts({"type": "object", "additionalProperties": schema_of(each)})(check)


def array(each: Check, least: int = 0) -> Check:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list):
            raise wrong(where, "expected a list.")
        if len(value) < least:
            raise wrong(where, "must not be empty.")
        for index, member in enumerate(value):
            each(member, f"{where}[{index}]")

    size = {"minItems": least} if least else {}
    return accepts({"type": "array", "items": schema_of(each), **size})(check)


def either(**checks: Check) -> Check:
    """A string, list or object (`str`, `list`, `dict`), each with its own check."""
    kinds = {"str": str, "list": list, "dict": dict}
    named = {"str": "a string", "list": "a list", "dict": "an object"}

    def check(value: Any, where: str) -> None:
        for name, each in checks.items():
            if isinstance(value, kinds[name]):
                return each(value, where)
        expected = " or ".join(named[name] for name in checks)
        raise wrong(where, f"expected {expected}.")

    json = {"str": "string", "list": "array", "dict": "object"}
    alternatives = [{"type": json[n], **schema_of(c)} for n, c in checks.items()]
    return accepts({"anyOf": alternatives})(check)


def by_type(
    checks: Mapping[str, Check], others: Check | None = None, field: str = "type"
) -> Check:
    """An object whose `field` determines its check. `others` checks types that are not
    listed; None refuses them."""

    def check(value: Any, where: str) -> None:
        mapping(value, where)
        if field not in value:
            raise wrong(f"{where}.{field}", "missing.")
        kind = value[field]
        string(kind, f"{where}.{field}")
        if (each := checks.get(kind, others)) is None:
            known = ", ".join(checks)
            problem = f"{kind[:_MAX_QUOTED]!r} is not supported here; use {known}."
            raise wrong(f"{where}.{field}", problem)
        each(value, where)

    alternatives = [
        _schema_for_type(field, {"enum": [k]}, schema_of(c)) for k, c in checks.items()
    ]
    if others is not None:
        free = {"type": "string", "not": {"enum": list(checks)}}
        alternatives.append(_schema_for_type(field, free, schema_of(others)))
    return accepts({"anyOf": [each for each in alternatives if each]})(check)


def or_untyped(kinds: Check, usual: Check, *empty: str | None) -> Schema:
    """The schema of `by_type`, extended by objects of the `usual` kind whose type is
    missing or `empty`."""
    other = {"not": {"enum": [*empty]}} if empty else {}
    typed = {"required": ["type"], "properties": {"type": other}}
    untyped = {"type": "object", **schema_of(usual), "not": typed}
    return {"anyOf": [*schema_of(kinds)["anyOf"], untyped]}


def _schema_for_type(field: str, kind: Schema, schema: Schema) -> Schema:
    """The schema of an object of that kind; {} if nothing is valid."""
    if "not" in schema:
        return {}
    return {
        **schema,
        "type": "object",
        "properties": {field: kind, **schema.get("properties", {})},
        "required": [field, *schema.get("required", ())],
    }


def refuse(problem: str, unless: Collection[Any] = (None, False)) -> Check:
    """A check for an unsupported field: only the values of `unless` pass."""

    def check(value: Any, where: str) -> None:
        same = (none for none in unless if value == none)
        if not any(isinstance(none, bool) is isinstance(value, bool) for none in same):
            raise wrong(where, problem)

    schema: Schema = {"enum": list(unless), "description": problem}
    return accepts(schema if unless else {"not": {}})(check)
