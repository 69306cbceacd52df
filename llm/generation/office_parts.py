"""Word, Excel and PowerPoint files inside a request: every model gets their text.

In the current question a file that cannot be read is a BadRequest that names it. In the
history a placeholder replaces it, as for files that can no longer be fetched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import add
from typing import Any

from llm.adaptation.input_modalities import question_start
from llm.errors import BadRequest
from llm.office.package import Reason, Unreadable
from llm.office.text import extract_text
from llm.wire.codecs.file_data import holds_office_file, read_file
from llm.wire.item_prefix_cache import fold_items
from llm.wire.items import CALL_OUTPUTS, Item
from llm.wire.request import Request

MAX_TEXT = 1_000_000  # bytes of the text of one file
MAX_FILES = 20  # of one request that are read: each may take seconds
#: Threads of its own, so that files do not delay what uses the common ones.
_READERS = ThreadPoolExecutor(1, thread_name_prefix="office-files")

#: The texts that were read for a turn, or why one was not, by the file's data.
OfficeTexts = dict[str, str | Unreadable]

_PLACEHOLDER = "[The file {name!r} stood here; it cannot be read.]"
_DEGRADED = "input (file not read)"
_REASONS: Mapping[Reason, str] = {
    "damaged": "it is damaged or has another format",
    "empty": "it contains no text",
    "protected": "it has a password or an old format",
    "too_large": "it is too large when it is unpacked",
    "unknown": "it has another format",
}


async def read_office_files(
    request: Request, texts: OfficeTexts
) -> tuple[Request, list[str]]:
    """Replace the files by their texts; also return what was lost. They are read in a
    thread, each once; of too many, the earliest are left out. Raises BadRequest."""
    found = fold_items(request.items, "office files", _office_data, add)
    if not found:
        return request, []
    question = question_start(request.items)
    if len(set(_office_data(request.items[question:]))) > MAX_FILES:
        raise BadRequest(
            f"A question can have at most {MAX_FILES} Office files.", param="input"
        )
    for number, data in enumerate(dict.fromkeys(reversed(found))):
        if number >= MAX_FILES:
            texts.setdefault(data, Unreadable("too_large"))
        elif data not in texts:
            running = asyncio.get_running_loop()
            texts[data] = await running.run_in_executor(_READERS, _read, data)
    items = [
        _with_texts(item, texts, is_past=number < question)
        for number, item in enumerate(request.items)
    ]
    are_lost = any(isinstance(texts[data], Unreadable) for data in found)
    return replace(request, items=items), [_DEGRADED] if are_lost else []


def _office_data(items: Sequence[Item]) -> list[str]:
    return [
        part["file_data"]
        for item in items
        if item.get("type") != "function_call"
        for part in _parts(item)
        if _is_office(part)
    ]


def _read(data: str) -> str | Unreadable:
    content = read_file(data).content()
    if content is None:
        return Unreadable("damaged")
    try:
        return extract_text(content, MAX_TEXT)
    except Unreadable as exc:
        return exc.with_traceback(None)


def _with_texts(item: Item, texts: OfficeTexts, *, is_past: bool) -> Item:
    parts = _parts(item)
    if not any(map(_is_office, parts)):
        return item
    changed = [_text(p, texts, is_past) if _is_office(p) else p for p in parts]
    return {**item, _content_key(item): changed}


def _text(part: Mapping[str, Any], texts: OfficeTexts, is_past: bool) -> dict[str, Any]:
    name, text = part.get("filename") or "file", texts[part["file_data"]]
    if isinstance(text, str):
        name = name.replace('"', "'")
        return {
            "type": "input_text",
            "text": f'<file name="{name}">\n{text}\n</file>',
        }
    if not is_past:
        raise BadRequest(
            f"The file {name!r} cannot be read: {_REASONS[text.reason]}. Send its text"
            " or a PDF, or leave it out.",
            param="input",
        )
    return {"type": "input_text", "text": _PLACEHOLDER.format(name=name)}


def _parts(item: Item) -> list[Any]:
    parts = item.get(_content_key(item))
    return parts if isinstance(parts, list) else []


def _content_key(item: Item) -> str:
    return "output" if item.get("type") in CALL_OUTPUTS else "content"


def _is_office(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and part.get("type") == "input_file"
        and holds_office_file(part)
    )
