"""JSON Schema validators with bounded time. References are never fetched.

Errors do not quote the value. A schema may come from a stranger (an MCP server, a
client of the gateway), and the validator cannot be interrupted. Patterns are matched in
linear time; a pattern with lookaround takes quadratic time, so with such a pattern
texts must be short. A schema that doubles at each reference, which a few hundred bytes
can do forty times, is refused. A schema that refers to itself in several branches takes
time exponential in the value's depth: a value that would take too long counts as
invalid. For a schema that names what is dangerous, `may_fit` counts it as fitting.

Source: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import orjson

from llm.wire.json_schema import recursion

if TYPE_CHECKING:
    import jsonschema_rs

#: What `compile_schema` raises. TypeError: it is nested too deeply to be written.
INVALID_SCHEMA = (ValueError, TypeError, RecursionError)

_MAX_PATTERN = 1024 * 1024  # bytes of a compiled pattern
_MAX_BACKTRACKS = 10_000  # of a pattern with lookaround, from each position of a text
#: The length limit of texts for a pattern with lookaround.
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
_MAX_NODES = 100_000  # of a schema with its references expanded
_MAX_AT_ONE_VALUE = 1_000  # schemas for one value before the work is counted
_MAX_WORK = 1_000_000  # schemas applied to a value, some 50 ms
_MAX_WORK_OF_ERRORS = 1_000  # the same when errors are collected, which takes longer
_REFERENCES = (b"$ref", b"$dynamicRef", b"$recursiveRef")
_MISFIT = "the value does not match; it is nested too deeply to say where"
_TOO_DEEP = "the value is nested too deeply for a schema that refers to itself so often"


class Validator(Protocol):
    def is_valid(self, instance: Any) -> bool: ...

    def iter_errors(self, instance: Any) -> Iterable[jsonschema_rs.ValidationError]: ...


def compile_schema(schema: Mapping[str, Any]) -> Validator:
    """Raises INVALID_SCHEMA for an invalid JSON Schema, or one with external
    references."""
    return _compile(orjson.dumps(schema, default=dict))


def may_fit(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether the value is valid, or nobody can tell: the schema itself is invalid, or
    to validate the value takes too long."""
    try:
        validator = compile_schema(schema)
    except INVALID_SCHEMA:
        return True
    if isinstance(validator, _LookaroundValidator | _RecursiveValidator):
        return not validator.can_judge(value) or validator.is_valid(value)
    return validator.is_valid(value)


@lru_cache(maxsize=1000)
def _compile(schema: bytes) -> Validator:
    parsed = orjson.loads(schema)
    levels = _measure(schema) if _may_recur(schema) else []
    if levels is None:
        raise ValueError("it is too large: its references lead to too many schemas")
    validator: Validator
    try:
        validator = _linear(parsed)
    except ValueError:  # a pattern with lookaround, or an invalid schema
        validator = _LookaroundValidator(parsed)
    if max(levels, default=0) <= _MAX_AT_ONE_VALUE:
        return validator
    return _RecursiveValidator(validator, levels)


@lru_cache(maxsize=100)
def _measure(schema: bytes) -> Sequence[int] | None:
    """The schemas applied to a value for each depth; None for a schema that is too
    large. Cached because `_compile` does not remember what it refuses."""
    parsed = orjson.loads(schema)
    try:
        size = _Size(parsed).of(parsed)
        return recursion.applications(parsed) if size <= _MAX_NODES else None
    except ValueError:
        return None


def _may_recur(schema: bytes) -> bool:
    return any(b'"%b"' % name in schema for name in _REFERENCES)


def _linear(schema: Any) -> jsonschema_rs.Validator:
    # Imported here because the module takes 6 MB, which a server needs only once it
    # validates something.
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(size_limit=_MAX_PATTERN)
    return jsonschema_rs.validator_for(
        schema, retriever=_refuse, mask="the value", pattern_options=options
    )


class _LookaroundValidator:
    """Validator for a schema with a pattern that takes more than linear time."""

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

    def can_judge(self, instance: Any) -> bool:
        """False for a long text, and where a pattern backtracks too often."""
        from jsonschema_rs import ValidationErrorKind

        return self._lengths.is_valid(instance) and not any(
            isinstance(error.kind, ValidationErrorKind.BacktrackLimitExceeded)
            for error in self._whole.iter_errors(instance)
        )

    def iter_errors(self, instance: Any) -> Iterable[jsonschema_rs.ValidationError]:
        if self._lengths.is_valid(instance):
            return self._whole.iter_errors(instance)
        return self._lengths.iter_errors(instance)


class _RecursiveValidator:
    """Validator for a schema that refers to itself in several branches."""

    def __init__(self, whole: Validator, levels: Sequence[int]) -> None:
        self._whole = whole
        self._levels = levels

    def is_valid(self, instance: Any) -> bool:
        return self._is_within(_MAX_WORK, instance) and self._whole.is_valid(instance)

    def can_judge(self, instance: Any) -> bool:
        if not self._is_within(_MAX_WORK, instance):
            return False
        whole = self._whole
        return not isinstance(whole, _LookaroundValidator) or whole.can_judge(instance)

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
    raise ValueError(f"{uri!r} is in another document, and schemas are never fetched")


class _Size:
    """Counts a schema's nodes with its references expanded. Each target is counted once
    and added for each reference to it."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._references = recursion.References(root)
        self._sizes: dict[int, int] = {}  # by the target's `id()`
        self._visits = 0

    def of(self, node: Any) -> int:
        """Raises ValueError once more than _MAX_NODES were visited."""
        self._visits += 1
        if self._visits > 2 * _MAX_NODES:  # the tree, and each target once
            raise ValueError
        match node:
            case dict():
                targets = sum(map(self._of_target, self._references.targets(node)))
                return 1 + targets + sum(map(self.of, node.values()))
            case list():
                return 1 + sum(map(self.of, node))
        return 1

    def _of_target(self, target: Any) -> int:
        key = id(target)
        if key not in self._sizes:
            self._sizes[key] = 0  # while it is being counted: here it is recursive
            # The root contains the definitions, which are counted with their
            # references.
            self._sizes[key] = 0 if target is self._root else self.of(target)
        return self._sizes[key]
