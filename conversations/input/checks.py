"""Checks of JSON values in requests, with errors that name the value's path; sizes of
texts and of files embedded as `data:` URLs, and the contents of these files. Pure.

A check takes a value and its path (`options.temperature`), returns the value as it is
stored, and raises InputError.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from llm.wire.sanitize import NUL, sanitize_text

MAX_DEPTH = 64  # levels of a JSON value
_FIELDS = ("image_url", "file_data")  # of embedded files

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
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return any(isinstance(inner, (dict, list)) for inner in level)


def is_inline(name: str, value: Any) -> bool:
    return name in _FIELDS and isinstance(value, str) and value.startswith("data:")


def inline_size(value: Any) -> int:
    """Bytes of all embedded files in items, parts, or a list of either."""
    match value:
        case Mapping():
            return sum(
                len(inner) if is_inline(name, inner) else inline_size(inner)
                for name, inner in value.items()
            )
        case str():
            return 0
        case Iterable():
            return sum(map(inline_size, value))
    return 0


def inline_contents(value: Any) -> Iterator[bytes]:
    """The embedded files; text that is not base64 stays as it was written."""
    match value:
        case Mapping():
            for name, inner in value.items():
                if is_inline(name, inner):
                    yield _decode(inner)
                else:
                    yield from inline_contents(inner)
        case str():
            return
        case Iterable():
            for inner in value:
                yield from inline_contents(inner)


def _decode(url: str) -> bytes:
    head, _, text = url.partition(",")
    try:
        return b64decode(text) if head.endswith(";base64") else text.encode()
    except ValueError:
        return text.encode()


def find_oversize(items: Iterable[Mapping[str, Any]], limit: int) -> int:
    """Size of the first message with files that is larger than `limit`; 0 for none."""
    for item in items:
        if _has_file(item) and (size := message_size(item)) > limit:
            return size
    return 0


def _has_file(item: Mapping[str, Any]) -> bool:
    parts = item.get("content") or item.get("output")
    return isinstance(parts, list) and any(
        name in part and is_inline(name, part[name])
        for part in parts
        if isinstance(part, Mapping)
        for name in _FIELDS
    )


def text_size(value: Any) -> int:
    """Bytes of all strings except embedded files."""
    match value:
        case str():
            return len(value.encode())
        case Mapping():
            return sum(
                0 if is_inline(name, inner) else text_size(inner)
                for name, inner in value.items()
            )
        case Iterable():
            return sum(map(text_size, value))
    return 0


def message_size(item: Mapping[str, Any]) -> int:
    """The bytes that count toward the size limit of one message.

    The screenshot in a `computer_call_output` does not count.
    """
    size = text_size(item)
    if item.get("type") == "computer_call_output":
        return size
    return size + inline_size(item)
