"""Parts of messages and tool outputs as Anthropic's content blocks.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from llm.errors import BadRequest
from llm.wire.codecs.file_data import (
    PDF,
    holds_office_file,
    is_data_url,
    names_video,
    read_file,
)

Part = Mapping[str, Any]
Block = dict[str, Any]

_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})


def text_block(text: str) -> Block:
    return {"type": "text", "text": text}


def blocks_of(content: str | Sequence[Part]) -> list[Block]:
    """Raises BadRequest for parts that Anthropic does not support."""
    if isinstance(content, str):
        content = [{"type": "input_text", "text": content}]
    return [block for part in content for block in _blocks(part)]


def plain_text(content: str | Sequence[Part]) -> str:
    if isinstance(content, str):
        return content
    return "".join(_text_of_part(part) for part in content)


def _blocks(part: Part) -> Iterator[Block]:
    match part["type"]:
        case "input_image":
            yield _image(part)
        case "input_file":
            yield _document(part)
        case _:
            if (text := _text_of_part(part)).strip():  # an empty block is refused
                yield text_block(text)


def _text_of_part(part: Part) -> str:
    text = part.get("text")
    text = part.get("refusal") if text is None else text
    if not isinstance(text, str):
        raise _cannot_send(f"a part of the type {part.get('type')!r}")
    return text


def _image(part: Part) -> Block:
    url = part.get("image_url")
    if isinstance(url, Mapping):
        url = url.get("url")
    if not url:
        raise _cannot_send("an image by its file id; send the image itself")
    if not is_data_url(url):
        return {"type": "image", "source": {"type": "url", "url": url}}
    image = read_file(url)
    kind = image.media_type.replace("image/jpg", "image/jpeg")
    if kind not in _IMAGES:
        raise _cannot_send(f"an image of the type {kind!r}; use PNG or JPEG")
    source = {"type": "base64", "media_type": kind, "data": image.encoded}
    return {"type": "image", "source": source}


def _document(part: Part) -> Block:
    block: Block = {"type": "document", "source": _source(part)}
    if name := part.get("filename"):
        block["title"] = name
    return block


def _source(part: Part) -> dict[str, Any]:
    if names_video(part):
        raise _cannot_send("a video; send pictures of it")
    if url := part.get("file_url"):
        return {"type": "url", "url": url}
    if not (data := part.get("file_data")):
        raise _cannot_send("a file by its id; send the file itself")
    if holds_office_file(part):
        # Found by a count or a look for losses: what is sent has its text instead.
        return {"type": "text", "media_type": "text/plain", "data": part["file_data"]}
    file = read_file(data, part.get("filename") or "")
    if file.media_type == PDF:
        return {"type": "base64", "media_type": PDF, "data": file.encoded}
    if not file.is_text:
        raise _cannot_send(f"{_file_label(part)}; send a PDF or its text")
    if (text := file.text()) is None:
        raise _cannot_send(f"{_file_label(part)}, which is not valid text")
    return {"type": "text", "media_type": "text/plain", "data": text}


def _file_label(part: Part) -> str:
    return f"the file {part['filename']!r}" if part.get("filename") else "this file"


def _cannot_send(what: str) -> BadRequest:
    return BadRequest(f"Claude does not accept {what}.", param="input")
