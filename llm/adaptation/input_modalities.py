"""Images and files in a request's input, for models that cannot read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm.wire.codecs.file_data import holds_office_file
from llm.wire.items import CALL_OUTPUTS, Item, message


@dataclass(frozen=True, slots=True)
class Modality:
    """A kind of input that a model may not support."""

    part_type: str
    field: str  # name of a field of Capabilities
    why: str
    legal: str
    placeholder: str


MODALITIES = (
    Modality(
        "input_image",
        "vision",
        "cannot see images",
        "leave them out of 'input' or choose another model",
        "[An image stood here that you cannot see.]",
    ),
    Modality(
        "input_file",
        "files",
        "cannot read files of this type",
        "send their text in 'input' or choose another model",
        "[A file stood here that you cannot read.]",
    ),
)
_TEXT_FILES = ("data:text/", "data:application/json", "data:application/xml")


def question_start(items: Sequence[Item]) -> int:
    """The index of the first item after the last one that a model or a tool wrote."""
    for number in range(len(items), 0, -1):
        if not _is_user_message(items[number - 1]):
            return number
    return 0


def _is_user_message(item: Item) -> bool:
    return item.get("type", "message") == "message" and item.get("role") != "assistant"


def replace_parts(item: Item, modality: Modality) -> Item:
    """Replace unsupported parts of `item` with a placeholder; `item` itself if it has
    none."""
    if not contains_part(modality, item):
        return item
    if _is_screenshot(item, modality):
        return message("user", modality.placeholder)
    placeholder, key = (
        {"type": "input_text", "text": modality.placeholder},
        _content_key(item),
    )
    return {
        **item,
        key: [placeholder if _is_hidden(p, modality) else p for p in item[key]],
    }


def contains_part(modality: Modality, item: Item) -> bool:
    """Whether the item has a part of this kind."""
    parts = item.get(_content_key(item))
    return _is_screenshot(item, modality) or (
        isinstance(parts, list) and any(_is_hidden(part, modality) for part in parts)
    )


def _content_key(item: Item) -> str:
    return "output" if item.get("type") in CALL_OUTPUTS else "content"


def _is_screenshot(item: Item, modality: Modality) -> bool:
    kind = item.get("type", "message")
    return kind == "computer_call_output" and modality.part_type == "input_image"


def _is_hidden(part: Mapping[str, Any], modality: Modality) -> bool:
    if part.get("type") != modality.part_type:
        return False
    if holds_office_file(part):
        return False  # its text is sent
    return not str(part.get("file_data") or "").startswith(_TEXT_FILES)
