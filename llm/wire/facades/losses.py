"""What of a request a host of another API cannot be told, beside options.

In: the body of a request. Out: the names of fields inside it that no canonical form
has. `request_conversion.portable` names the options.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MAX_NAMES = 30  # that are reported
_MAX_NAME = 40  # characters
_PROOFS = "reasoning.encrypted_content"  # which the server makes itself


def find_losses(api: str, body: Mapping[str, Any]) -> list[str]:
    """The names, each once; `api` is "chat", "messages" or "responses"."""
    return list(dict.fromkeys(_FINDERS[api](body)))


def short_names(names: Iterator[str] | list[str]) -> list[str]:
    """Names for a header: clients choose some of them."""
    return [name[:_MAX_NAME] for name in names][:MAX_NAMES]


def _in_chat(body: Mapping[str, Any]) -> Iterator[str]:
    for message in _objects(body.get("messages")):
        if message.get("name"):
            yield "messages.name"
        if message.get("audio"):
            yield "messages.audio"
        if any("cache_control" in part for part in _objects(message.get("content"))):
            yield "cache_control"


def _in_messages(body: Mapping[str, Any]) -> Iterator[str]:
    if "cache_control" in body:
        yield "cache_control"
    for entry in (*_objects(body.get("system")), *_objects(body.get("tools"))):
        if entry.get("cache_control"):
            yield "cache_control"
    for message in _objects(body.get("messages")):
        for block in _objects(message.get("content")):
            yield from _in_block(block)
            for part in _objects(block.get("content")):
                yield from _in_block(part)


def _in_block(block: Mapping[str, Any]) -> Iterator[str]:
    if block.get("cache_control"):
        yield "cache_control"
    if block.get("type") == "document":
        if (block.get("citations") or {}).get("enabled"):
            yield "messages.citations"
        if block.get("context"):
            yield "messages.context"


def _in_responses(body: Mapping[str, Any]) -> Iterator[str]:
    if body.get("truncation") == "auto":
        yield "truncation"
    if any(each != _PROOFS for each in body.get("include") or ()):
        yield "include"


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each


_FINDERS = {"chat": _in_chat, "messages": _in_messages, "responses": _in_responses}
