"""Files of a conversation's folder, as its turns give them to the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from conversations.models import Folder, FolderFile
from conversations.turns.file_contents import content_part, read_content
from conversations.turns.file_kinds import IMAGES, TEXT
from conversations.turns.history import ContextBlock
from llm.capabilities import Capabilities
from llm.wire.items import Item as ItemPayload
from llm.wire.items import message

_HEADING = "Files that belong to all conversations of this folder:"
_MISSING = "[The file {name} stood here; it is no longer kept.]"
_UNSEEN = "[The file {name} is here; you cannot read files of this type.]"


def text_blocks(files: Sequence[FolderFile]) -> list[ContextBlock]:
    """The texts, for the instructions."""
    texts = (file for file in files if file.content_type == TEXT)
    return [ContextBlock(file.name, file.text) for file in texts]


def files_message(files: Sequence[FolderFile], can: Capabilities) -> list[ItemPayload]:
    """A message with the pictures and documents; none if there are none. What the model
    is known not to read is named in it, so that the folder can be used nevertheless."""
    others = _documents(files)
    if not others:
        return []
    heading = {"type": "input_text", "text": _HEADING}
    content = [heading, *(_part(file, can) for file in others)]
    return [{**message("user", ""), "content": content}]


def has_documents(files: Sequence[FolderFile]) -> bool:
    """Whether `files_message` makes a message of them."""
    return bool(_documents(files))


def _documents(files: Sequence[FolderFile]) -> Sequence[FolderFile]:
    return [file for file in files if file.content_type != TEXT]


def files_of(folder: Folder) -> Sequence[FolderFile]:
    return list(folder.files.all())


def _part(file: FolderFile, can: Capabilities) -> dict[str, Any]:
    is_read = can.vision if file.content_type in IMAGES else can.files
    if is_read is False:
        return _note(_UNSEEN, file)
    content = read_content(file)
    return _note(_MISSING, file) if content is None else content_part(content)


def _note(words: str, file: FolderFile) -> dict[str, Any]:
    return {"type": "input_text", "text": words.format(name=repr(file.name))}
