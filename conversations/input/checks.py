"""Checks of JSON values in requests, with errors that name the value's path. Pure.

A check takes a value and its path (`options.temperature`), returns the value as it is
stored, and raises InputError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from llm.wire.sanitize import NUL, sanitize_text

MAX_DEPTH = 64  # levels of a JSON value

Check = Callable[[Any, str], Any]


class InputError(Exception):
    """A value in a request is invalid; `param` is its path."""

    status = 400

    def __init__(
        self, param: str, problem: str, *, code: str = "invalid_value"
    ) -> None:
        super().__init__(f"{param}: {problem}")
        self.param = param
        self.code = code


class InputSizeError(InputError):
    status = 413


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(where, "expected an object.", code="invalid_type")
    return value


def check_known(fields: Mapping[str, Any], names: Collection[str], where: str) -> None:
    for name in fields:
        if name not in names:
            raise InputError(
                f"{where}.{name[:100]}",
                f"unknown; use {either(sorted(names))}.",
                code="unknown_parameter",
            )


def require(fields: Mapping[str, Any], name: str, where: str) -> Any:
    if fields.get(name) is None:
        raise InputError(f"{where}.{name}", "missing.", code="missing")
    return fields[name]


def check_length(value: list[Any], where: str, limit: int) -> list[Any]:
    if not value:
        raise InputError(where, "must not be empty.", code="empty_message")
    if len(value) > limit:
        raise InputError(where, f"at most {limit} entries are allowed.")
    return value


def string(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InputError(where, "expected a string.", code="invalid_type")
    if "\0" in value:
        raise InputError(where, "must not contain the character NUL.")
    try:
        value.encode()
    except UnicodeEncodeError as exc:
        raise InputError(where, "contains half of a surrogate pair.") from exc
    return value


def check_no_nul(value: Any, body: bytes) -> None:
    """Raises InputError for the first NUL in `value`, which was parsed from `body`."""
    if NUL in body:
        _check_no_nul(value, "")


def _check_no_nul(value: Any, where: str) -> None:
    match value:
        case str():
            string(value, where)
        case list():
            for index, each in enumerate(value):
                _check_no_nul(each, f"{where}[{index}]")
        case dict():
            for name, each in value.items():
                at = f"{where}.{sanitize_text(name[:100])}".removeprefix(".")
                string(name, at)
                _check_no_nul(each, at)


def non_empty_string(value: Any, where: str) -> str:
    if not string(value, where):
        raise InputError(where, "must not be empty.")
    return str(value)


def short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "…"


def either(names: Collection[str]) -> str:
    return ", ".join(repr(name) for name in names)


def number(least: float, most: float) -> Check:
    def check(value: Any, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise InputError(where, "expected a number.", code="invalid_type")
        if not least <= value <= most:
            raise InputError(where, f"must lie between {least:g} and {most:g}.")
        return value

    return check


def whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(where, "expected a whole number.", code="invalid_type")
    if not 1 <= value <= 10_000_000:
        raise InputError(where, "must lie between 1 and 10000000.")
    return value


def integer(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(where, "expected a whole number.", code="invalid_type")
    if not -(2**63) <= value < 2**63:
        raise InputError(where, "must fit into 64 bits.")
    return value


def boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(where, "expected true or false.", code="invalid_type")
    return value


def choice(*choices: str) -> Check:
    def check(value: Any, where: str) -> str:
        if not isinstance(value, str) or value not in choices:
            raise InputError(
                where, f"{short_repr(value)} is not one of {either(choices)}."
            )
        return value

    return check


def record(checks: Mapping[str, Check], needed: Collection[str] = ()) -> Check:
    def check(value: Any, where: str) -> dict[str, Any]:
        fields = mapping(value, where)
        check_known(fields, checks, where)
        for name in needed:
            require(fields, name, where)
        return {
            name: checks[name](field, f"{where}.{name}")
            for name, field in fields.items()
            if field is not None
        }

    return check


def by_type(kinds: Mapping[str, Check]) -> Check:
    def check(value: Any, where: str) -> dict[str, Any]:
        fields = mapping(value, where)
        kind = choice(*kinds)(require(fields, "type", where), f"{where}.type")
        checked: dict[str, Any] = kinds[kind](fields, where)
        return checked

    return check


def is_deeper(value: Any, depth: int = MAX_DEPTH) -> bool:
    """True if lists and objects are nested more than `depth` levels."""
    level = [value]
    for _ in range(depth):
        level = [inner for outer in level for inner in children(outer)]
        if not level:
            return False
    return any(isinstance(inner, (dict, list)) for inner in level)


def children(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
