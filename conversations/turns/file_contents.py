"""The contents of stored files, in the form in which a request has them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from conversations.models import Attachment, FolderFile
from conversations.turns.file_kinds import IMAGES, TEXT, decode_text


@dataclass(frozen=True, slots=True)
class FileContent:
    """A file's content, to be put into a request."""

    name: str
    content_type: str
    data: bytes


def load_contents(rows: Iterable[Attachment]) -> dict[str, FileContent]:
    """The files by id; those that no longer exist are left out. Queries nothing. Raises
    FilesUnavailable."""
    return {row.pk: content for row in rows if (content := read_content(row))}


def read_content(row: Attachment | FolderFile) -> FileContent | None:
    """None if the file itself no longer exists. Raises FilesUnavailable."""
    try:
        with row.file.open("rb") as file:
            return FileContent(row.name, row.content_type, file.read())
    except FileNotFoundError:
        return None


def content_part(content: FileContent, detail: str = "auto") -> dict[str, Any]:
    """The file as a part of a message that every provider accepts."""
    if content.content_type == TEXT:
        name = content.name.replace('"', "'")
        text = decode_text(content.data) or ""
        wrapped = f'<file name="{name}">\n{text}\n</file>'
        return {"type": "input_text", "text": wrapped}
    url = f"data:{content.content_type};base64,{b64encode(content.data).decode()}"
    if content.content_type in IMAGES:
        return {"type": "input_image", "image_url": url, "detail": detail}
    return {"type": "input_file", "filename": content.name, "file_data": url}
