"""Images in a tool's output. Pure.

A provider refuses a request with an image that it cannot read. An output stays in the
conversation, so one damaged image would fail each further turn of its branch.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from typing import Any

_DATA_URL = re.compile(r"data:image/(png|jpe?g|gif|webp);base64,", re.IGNORECASE)
_SPACE = re.compile(r"\s+")
#: How files of each type begin.
_BEGINNINGS = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}


def check_image(part: dict[str, Any]) -> dict[str, Any]:
    """The part as it is; with the type that its content has, if it names another; or a
    text that describes an image that no model can read."""
    url = part.get("image_url")
    if not isinstance(url, str) or (found := _DATA_URL.match(url)) is None:
        return part
    data = _SPACE.sub("", url[found.end() :])  # some wrap it in lines
    try:
        content = b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return _unreadable(len(data), "characters")
    if (media_type := _type_of(content)) is None:
        return _unreadable(len(content), "bytes")
    return {**part, "image_url": f"data:{media_type};base64,{data}"}


def _type_of(content: bytes) -> str | None:
    kinds = (kind for kind, begins in _BEGINNINGS.items() if begins.match(content))
    return next(kinds, None)


def _unreadable(size: int, unit: str) -> dict[str, Any]:
    text = f"[An image that cannot be read, {size:,} {unit}, not shown.]"
    return {"type": "input_text", "text": text}
