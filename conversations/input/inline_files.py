"""Sizes of files that are embedded in items as `data:` URLs. Pure."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_FIELDS = ("image_url", "file_data")


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
