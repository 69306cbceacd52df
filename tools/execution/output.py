"""Tool results as model input. Pure: any value in, text or content parts out.

Text and lists of content parts stay as they are; every other value becomes JSON.

Source: https://www.openresponses.org/specification (function_call_output)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from llm.concurrency.worker_thread import LARGE
from llm.wire.sanitize import sanitize_json, sanitize_text
from tools.errors import UnusableOutput
from tools.execution.images import check_image

MAX_TEXT = 50_000  # characters of one output; some 12,000 tokens
_VALUE = 32  # bytes: what reading a value costs, as much as so much of a text
MAX_RESULT = 64 * 1024 * 1024  # characters of a text, or bytes of JSON

Output = str | list[dict[str, Any]]

#: The content fields of each kind of part; a part needs text in one of them.
_CONTENT = {
    "input_text": ("text",),
    "input_image": ("image_url", "file_id"),
    "input_file": ("file_data", "file_url", "file_id"),
}


@dataclass(frozen=True, slots=True)
class RenderedOutput:
    output: Output
    full_text: str | None = None  # the whole text, if the output was truncated


def measure(value: Any) -> int:
    """About how many bytes `render_output` has to read; some number above LARGE if they
    are many, or if the value is of a type that is not JSON's.

    Raises UnusableOutput for an iterator, since what it does as it is read may take any
    time: wait for a server, or never end.
    """
    size, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Iterator):
            raise UnusableOutput(
                f"its result has an iterator, of type {type(each).__name__}: a tool"
                " returns a list instead."
            )
        size += _size_of(each)
        if size > LARGE:
            break
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list | tuple | set | frozenset):
            waiting += each
    return size


def _size_of(value: Any) -> int:
    """The size of one value, without the values that it contains."""
    match value:
        case str() | bytes():
            return len(value)
        case dict() if len(value) * _VALUE <= LARGE:
            names = sum(len(name) for name in value if isinstance(name, str))
            return names + _VALUE * len(value)
        case dict() | list() | tuple() | set() | frozenset():
            return _VALUE * len(value)
        case None | bool() | int() | float():
            return _VALUE
    return LARGE + 1


def render_output(value: Any) -> RenderedOutput:
    """Raises UnusableOutput."""
    if _is_parts(value):
        parts = _checked_parts(value)
        texts = [part["text"] for part in parts if part["type"] == "input_text"]
        is_cut = sum(map(len, texts)) > MAX_TEXT
        return RenderedOutput(_cut(parts), "\n".join(texts) if is_cut else None)
    text = _text(value) if isinstance(value, str) else _json(value).decode()
    return RenderedOutput(truncate(text), text if len(text) > MAX_TEXT else None)


def encode_json(value: Any) -> bytes:
    """The value as JSON bytes. Raises UnusableOutput.

    `render_output` gives the same output for the value and for the parsed JSON.
    """
    measure(value)
    return _json(_text(value) if isinstance(value, str) else value)


def truncate(text: str, limit: int = MAX_TEXT) -> str:
    if len(text) <= limit:
        return text
    note = f"[Cut: this is the beginning, {limit:,} of {len(text):,} characters.]"
    return f"{text[:limit]}\n{note}"


def _is_parts(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(part, dict)
            and isinstance(part.get("type"), str)  # a list has no hash
            and part["type"] in _CONTENT
            for part in value
        )
    )


def _checked_parts(value: list[dict[str, Any]]) -> list[dict[str, Any]]:
    try:
        parts: list[dict[str, Any]] = sanitize_json(from_json(_json(value)))
    except ValueError as exc:
        raise _cannot_be_written(value) from exc
    for number, part in enumerate(parts):
        if not any(isinstance(part.get(name), str) for name in _CONTENT[part["type"]]):
            names = " or ".join(_CONTENT[part["type"]])
            raise UnusableOutput(f"part {number} of its result has no {names}.")
    return [
        check_image(part) if part["type"] == "input_image" else part for part in parts
    ]


def _cut(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The parts, with at most MAX_TEXT characters of text in all."""
    result: list[dict[str, Any]] = []
    left = MAX_TEXT
    for part in parts:
        if part["type"] != "input_text":
            result.append(part)
        elif left > 0:
            result.append({**part, "text": truncate(part["text"], left)})
            left -= len(part["text"])
    return result


def _text(value: str) -> str:
    if len(value) > MAX_RESULT:
        raise _too_large()
    return sanitize_text(value)


def _json(value: Any) -> bytes:
    try:
        encoded = to_json(value, inf_nan_mode="strings")
    except (PydanticSerializationError, ValueError, RecursionError) as exc:
        raise _cannot_be_written(value) from exc
    if len(encoded) > MAX_RESULT:
        raise _too_large()
    return encoded


def _cannot_be_written(value: Any) -> UnusableOutput:
    return UnusableOutput(
        f"its result, of type {type(value).__name__}, cannot be written as JSON."
    )


def _too_large() -> UnusableOutput:
    return UnusableOutput(
        f"its result is larger than {MAX_RESULT:,} bytes; ask for less."
    )
