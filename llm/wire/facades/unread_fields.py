"""Fields inside a body's objects that no canonical form has, found by their names.

In: the body of a request. Out: names such as "tools.defer_loading" of each field that
the readers leave unread, so that a field that is newer than these lists is named too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

_EMPTY: tuple[Any, ...] = (None, "", [], {}, False)
_SEEN = frozenset({"cache_control", "id", "index", "object", "status", "type"})
#: Fields that are read, or that `losses` names by itself, and those that a client
#: only repeats from an answer.
_CHAT_MESSAGE = {
    "annotations",
    "audio",
    "content",
    "extra_content",
    "function_call",
    "name",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "refusal",
    "role",
    "thinking_blocks",
    "tool_call_id",
    "tool_calls",
}
_CHAT_PARTS = {
    "file": {"file"},
    "image_url": {"image_url"},
    "input_audio": {"input_audio"},
    "text": {"annotations", "text"},
    "video_url": {"video_url"},
}
_BLOCKS = {
    "document": {"citations", "context", "source", "title"},
    "image": {"source"},
    "search_result": {"citations", "content", "source", "title"},
    "text": {"citations", "text"},
    "tool_reference": {"tool_name"},
    "tool_result": {"content", "is_error", "tool_use_id"},
    "tool_use": {"caller", "input", "name"},
}
_PARTS = {
    "input_audio": {"input_audio"},
    "input_file": {"file_data", "file_id", "file_url", "filename"},
    "input_image": {"detail", "file_id", "image_url"},
    "input_text": {"text"},
    "output_text": {"annotations", "logprobs", "text"},
}
_FUNCTION = {"description", "name", "parameters", "strict"}
_OWN_FUNCTION = {"description", "input_schema", "name", "strict"}  # of Messages


def unread_in_chat(body: Mapping[str, Any]) -> Iterator[str]:
    for message in _objects(body.get("messages")):
        yield from _unread("messages", message, _CHAT_MESSAGE)
        for part in _objects(message.get("content")):
            yield from _unread_in_part("messages", part, _CHAT_PARTS)
    for tool in _objects(body.get("tools")):
        if tool.get("type") == "function":
            yield from _unread("tools", tool, {"function"})
            function = tool.get("function")
            if isinstance(function, dict):
                yield from _unread("tools", function, _FUNCTION)
            if "cache_control" in tool:
                yield "cache_control"
    reasoning = body.get("reasoning")  # OpenRouter's
    if isinstance(reasoning, dict):
        yield from _unread("reasoning", reasoning, {"effort", "enabled", "summary"})


def unread_in_messages(body: Mapping[str, Any]) -> Iterator[str]:
    for message in _objects(body.get("messages")):
        yield from _unread("messages", message, {"content", "role"})
        for block in _objects(message.get("content")):
            yield from _unread_in_part("messages", block, _BLOCKS)
            if block.get("type") == "container_upload":
                yield "messages.container_upload"
            for part in _objects(block.get("content")):
                yield from _unread_in_part("messages", part, _BLOCKS)
    for tool in _objects(body.get("tools")):
        if tool.get("type") in (None, "custom"):
            yield from _unread("tools", tool, _OWN_FUNCTION)
    metadata = body.get("metadata")
    if isinstance(metadata, dict):
        yield from _unread("metadata", metadata, {"user_id"})


def unread_in_responses(body: Mapping[str, Any]) -> Iterator[str]:
    for item in _objects(body.get("input")):
        if item.get("type") in (None, "message"):
            yield from _unread("input", item, {"content", "phase", "role"})
            for part in _objects(item.get("content")):
                yield from _unread_in_part("input", part, _PARTS)
    for tool in _objects(body.get("tools")):
        if tool.get("type") == "function":
            yield from _unread("tools", tool, _FUNCTION)


def _unread_in_part(
    where: str, part: Mapping[str, Any], kinds: Mapping[str, Collection[str]]
) -> Iterator[str]:
    if (known := kinds.get(str(part.get("type")))) is not None:
        yield from _unread(where, part, known)


def _unread(
    where: str, entry: Mapping[str, Any], known: Collection[str]
) -> Iterator[str]:
    for name, value in entry.items():
        if name not in known and name not in _SEEN and value not in _EMPTY:
            yield f"{where}.{name}"


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each
