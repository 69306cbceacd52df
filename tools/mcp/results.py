"""Conversion of MCP tool results to text or content parts. Pure.

In: the `CallToolResult` in its wire format. Out: text, or content parts.

Source: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-result
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from llm.wire import bounded_json
from tools.errors import ToolError
from tools.json_schema import long_integers

Part = dict[str, Any]

#: Images that models can read; other types are only described.
_MODEL_IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def result_of(result: Mapping[str, Any]) -> str | list[Part]:
    """Raises ToolError with the tool's own message if the tool reports an error."""
    parts = [part for block in result.get("content") or () for part in _parts(block)]
    if "structuredContent" in result:
        parts += _extra_structured_parts(result["structuredContent"], parts)
    texts = [part["text"] for part in parts if part["type"] == "input_text"]
    if result.get("isError"):
        raise ToolError("\n\n".join(filter(None, texts)) or "the tool failed.")
    return parts if len(texts) < len(parts) else "\n\n".join(texts)


def _parts(block: Mapping[str, Any]) -> Iterator[Part]:
    match block.get("type"):
        case "text":
            yield _text(block["text"])
        case "image":
            yield _image(block["mimeType"], block["data"], "An image")
        case "audio":
            yield _describe_media("Audio", block["mimeType"], block["data"])
        case "resource_link":
            yield _text(_link(block))
        case "resource":
            yield from _resource(block["resource"])
        case other:
            yield _text(f"[Content of the type {str(other)!r} cannot be shown.]")


def _text(text: str) -> Part:
    return {"type": "input_text", "text": text}


def _image(media_type: str, data: str, what: str) -> Part:
    if media_type.lower() not in _MODEL_IMAGE_TYPES:
        return _describe_media(what, media_type, data)
    return {"type": "input_image", "image_url": _data_url(media_type, data)}


def _describe_media(what: str, media_type: str, data: str) -> Part:
    return _text(f"[{what} of the type {media_type}, {_size(data)}, not shown.]")


def _link(block: Mapping[str, Any]) -> str:
    name = block.get("title") or block.get("name") or "a resource"
    media_type = f" ({block['mimeType']})" if block.get("mimeType") else ""
    description = f"\n{block['description']}" if block.get("description") else ""
    return f"[Resource: {name}]({block['uri']}){media_type}{description}"


def _resource(resource: Mapping[str, Any]) -> Iterator[Part]:
    """The URI, then the content: text, an image, or a file if models can read it."""
    yield _text(f"[Resource: {resource['uri']}]")
    media_type = resource.get("mimeType") or "application/octet-stream"
    if "text" in resource:
        yield _text(resource["text"])
    elif media_type.lower() == "application/pdf":
        yield {
            "type": "input_file",
            "filename": _file_name(resource["uri"]),
            "file_data": _data_url(media_type, resource["blob"]),
        }
    else:
        yield _image(media_type, resource["blob"], "A file")


def _extra_structured_parts(value: Any, parts: list[Part]) -> list[Part]:
    """The structured content as a part; none if a text repeats it, as MCP advises."""
    unwrapped = _unwrap(value)
    texts = [part["text"] for part in parts if part["type"] == "input_text"]
    if any(text == unwrapped or _is_json_of(text, value, unwrapped) for text in texts):
        return []
    if isinstance(unwrapped, list) and len(unwrapped) == len(texts):
        pairs = zip(texts, unwrapped, strict=True)
        if all(text == value or _is_json_of(text, value) for text, value in pairs):
            return []  # one text for each
    return [_text(long_integers.dump(value).decode())]


def _unwrap(value: Any) -> Any:
    """The value without FastMCP's wrapper: FastMCP wraps all results but objects in
    {"result": …} and repeats the bare value as text."""
    if isinstance(value, dict) and value.keys() == {"result"}:
        return value["result"]
    return value


def _is_json_of(text: str, *values: Any) -> bool:
    try:
        return bounded_json.loads_exact(text.encode(errors="replace")) in values
    except orjson.JSONDecodeError:
        return False


def _data_url(media_type: str, data: str) -> str:
    return f"data:{media_type};base64,{data}"


def _file_name(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2] or "file"


def _size(data: str) -> str:
    try:
        return f"{len(b64decode(data)):,} bytes"
    except (binascii.Error, ValueError):
        return "damaged"
