"""Images in a tool's output. Pure.

A provider refuses a request with an image that it cannot read. An output stays in the
conversation, so one damaged image would fail each further turn of its branch.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Any

_DATA_URL = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://", re.IGNORECASE)
_SPACE = re.compile(r"\s+")
#: How files of each type begin.
_BEGINNINGS = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
#: What a whole file has at its end; other data may follow it.
_ENDS = {"image/png": b"IEND", "image/jpeg": b"\xff\xd9", "image/gif": b";"}
_HEAD = 12  # bytes of a WebP file before its content


def check_image(part: dict[str, Any]) -> dict[str, Any]:
    """The part as it is; with the type that its content has, if it names another; or a
    text that describes an image that no model can read."""
    url = part.get("image_url")
    if not isinstance(url, str) or _ADDRESS.match(url):
        return part
    found = _DATA_URL.match(url)
    if found is None or not found[2].lower().endswith(";base64"):
        return _unreadable(len(url), "characters")
    data = _SPACE.sub("", url[found.end() :])  # some wrap it in lines
    try:
        content = b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return _unreadable(len(data), "characters")
    media_type = _type_of(content)
    if media_type is None or not _is_whole(media_type, content):
        return _unreadable(len(content), "bytes")
    return {**part, "image_url": f"data:{media_type};base64,{data}"}


def _type_of(content: bytes) -> str | None:
    kinds = (kind for kind, begins in _BEGINNINGS.items() if begins.match(content))
    return next(kinds, None)


def _is_whole(media_type: str, content: bytes) -> bool:
    if media_type == "image/webp":
        size = int.from_bytes(content[4:8], "little") + 8
        return _HEAD < size <= len(content)
    return content.rfind(_ENDS[media_type], _HEAD) > 0


def _unreadable(size: int, unit: str) -> dict[str, Any]:
    text = f"[An image that cannot be read, {size:,} {unit}, not shown.]"
    return {"type": "input_text", "text": text}
