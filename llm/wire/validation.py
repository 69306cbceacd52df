"""JSON Schemas made ready to hold values against. Nothing is fetched, no value quoted.

A schema may come from a stranger (an MCP server, a client of the gateway), and the
validator runs in one go. Patterns are tried in linear time; one that needs to look
around takes the square of its text's length, so beside such a pattern texts are short.
A schema that doubles at each reference, which a few hundred bytes can do forty times,
is refused. One that refers to itself in several branches takes a time that grows with
the power of the value's depth: a value that would take too long does not fit it.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import orjson

from llm.wire import recursion

if TYPE_CHECKING:
    import jsonschema_rs

_MAX_PATTERN = 1024 * 1024  # bytes of a pattern that is ready to be tried
_MAX_BACKTRACKS = 10_000  # of a pattern that looks around, from each place of a text
#: Texts no longer than a pattern that looks around may be tried on.
_SHORT_TEXTS = {
    "$defs": {
        "value": {
            "maxLength": 1_000,
            "items": {"$ref": "#/$defs/value"},
            "additionalProperties": {"$ref": "#/$defs/value"},
        }
    },
    "$ref": "#/$defs/value",
}
_MAX_NODES = 100_000  # of a schema with its references written out
_MAX_AT_ONE_VALUE = 1_000  # schemas that apply to a value before its work is counted
_MAX_WORK = 1_000_000  # schemas applied to a value, which are some 50 ms
_MAX_WORK_OF_ERRORS = 1_000  # the same where mistakes are told, which takes longer
_REFERENCES = (b"$ref", b"$dynamicRef", b"$recursiveRef")
_MISFIT = "the value does not fit; it is nested too deeply to tell where"
_TOO_DEEP = "the value is nested too deeply for a schema that refers to itself so often"


class Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...

    def iter_errors(self, instance: Any) -> Iterable[jsonschema_rs.ValidationError]: ...


def compiled(schema: Mapping[str, Any]) -> Validator:
    """Raises ValueError where this is no JSON Schema, or one that points elsewhere."""
    return _compiled(orjson.dumps(schema, default=dict))


@lru_cache(maxsize=1000)
def _compiled(schema: bytes) -> Validator:
    told = orjson.loads(schema)
    if b'"$ref"' in schema and _Size(told).of(told) > _MAX_NODES:
        raise ValueError("it is too large: its references lead to too many schemas")
    validator: Validator
    try:
        validator = _linear(told)
    except ValueError:  # a pattern that looks around, or a mistake
        validator = _LookingAround(told)
    levels = recursion.applications(told) if _may_recur(schema) else []
    if max(levels, default=0) <= _MAX_AT_ONE_VALUE:
        return validator
    return _Recursive(validator, levels)


def _may_recur(schema: bytes) -> bool:
    return any(b'"%b"' % name in schema for name in _REFERENCES)


def _linear(schema: Any) -> jsonschema_rs.Validator:
    # It takes 6 MB, which a server that has not checked anything yet does not need.
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(size_limit=_MAX_PATTERN)
    return jsonschema_rs.validator_for(
        schema, retriever=_refuse, mask="the value", pattern_options=options
    )


class _LookingAround:
    """Of a schema with a pattern that takes more than linear time."""

    def __init__(self, schema: Any) -> None:
        import jsonschema_rs

        options = jsonschema_rs.FancyRegexOptions(
            backtrack_limit=_MAX_BACKTRACKS, size_limit=_MAX_PATTERN
        )
        self._lengths = _linear(_SHORT_TEXTS)
        self._whole = jsonschema_rs.validator_for(
            schema, retriever=_refuse, mask="the value", pattern_options=options
        )

    def is_valid(self, instance: Any) -> bool:
        return self._lengths.is_valid(instance) and self._whole.is_valid(instance)

    def iter_errors(self, instance: Any) -> Iterable[jsonschema_rs.ValidationError]:
        if self._lengths.is_valid(instance):
            return self._whole.iter_errors(instance)
        return self._lengths.iter_errors(instance)


class _Recursive:
    """Of a schema that refers to itself in several branches."""

    def __init__(self, whole: Validator, levels: Sequence[int]) -> None:
        self._whole = whole
        self._levels = levels

    def is_valid(self, instance: Any) -> bool:
        return self._is_within(_MAX_WORK, instance) and self._whole.is_valid(instance)

    def iter_errors(self, instance: Any) -> Iterable[jsonschema_rs.ValidationError]:
        if self._is_within(_MAX_WORK_OF_ERRORS, instance):
            return self._whole.iter_errors(instance)
        if not self._is_within(_MAX_WORK, instance):
            return _one_error(_TOO_DEEP)
        return [] if self._whole.is_valid(instance) else _one_error(_MISFIT)

    def _is_within(self, most: int, instance: Any) -> bool:
        return recursion.work(self._levels, instance, most) <= most


def _one_error(message: str) -> list[jsonschema_rs.ValidationError]:
    import jsonschema_rs

    (any_error,) = jsonschema_rs.validator_for(False, mask="the value").iter_errors(0)
    kind = any_error.kind
    return [jsonschema_rs.ValidationError(message, message, [], [], [], kind, None)]


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri!r} is elsewhere, and a schema is never fetched")


class _Size:
    """How many nodes a schema has with its references written out, each of which is
    counted once and added as often as it is named."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._sizes: dict[str, int] = {}

    def of(self, node: Any) -> int:
        match node:
            case dict():
                ref = node.get("$ref")
                target = self._of_target(ref) if isinstance(ref, str) else 0
                return 1 + target + sum(map(self.of, node.values()))
            case list():
                return 1 + sum(map(self.of, node))
        return 1

    def _of_target(self, ref: str) -> int:
        if ref not in self._sizes:
            self._sizes[ref] = 0  # while it is being counted: there it recurs
            target = recursion.at(self._root, ref)
            # As the root holds the definitions, a reference to it counts what it names.
            self._sizes[ref] = 0 if target is self._root else self.of(target)
        return self._sizes[ref]
