"""The marks of ChatGPT's citations in a text, and what they stand for. Pure.

Since 2025 an answer has marks between U+E200 and U+E201, whose fields U+E202 separates:
`cite`, `entity`, `navlist`, `image_group` and others. `metadata.content_references` has
the words that ChatGPT shows for them. Answers of 2023 and 2024 have 【11†source】.

Sources: https://github.com/Laumss/loominary/issues/17 (`matched_text`, `alt`, `items`),
https://github.com/daugaard47/ChatGPT_Conversations_To_Markdown/issues/8 (`entity`),
https://github.com/josephjohncox/chatgpt-json-to-md (【…】)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from conversations.transfer.source import objects, text

_MAX_WORDS = 2000  # characters that stand for one mark
_SEPARATOR = "\ue202"
_MARK = re.compile(
    r" ?(\ue200[^\ue200\ue201]*+\ue201"
    r"|\u3010\d[\d:]{0,20}\u2020[^\u3010\u3011\n]{0,200}\u3011)"
)
_REST = re.compile("[\ue200-\ue206]")


def replace_marks(words: str, references: Any) -> str:
    """The text with the words or links for its marks, and without the others."""
    if not _REST.search(words) and "\u3010" not in words:
        return words
    known = dict(_read(references))

    def replace(mark: re.Match[str]) -> str:
        found = known.get(mark[1]) or _name(mark[1])
        space = mark[0][: -len(mark[1])]
        return space + found if found else ""

    return _REST.sub("", _MARK.sub(replace, words))


def _read(references: Any) -> Iterator[tuple[str, str]]:
    """Marks and the words for them."""
    for each in objects(references):
        words = text(each.get("alt"), _MAX_WORDS) or _links(each.get("items"))
        yield text(each.get("matched_text")), words


def _links(items: Any) -> str:
    links = []
    for item in objects(items):
        title, address = text(item.get("title"), 200), text(item.get("url"), 1000)
        title = re.sub(r"[\[\]\s]+", " ", title).strip()
        if title and re.fullmatch(r"https?://[^\s()<>]+", address):
            links.append(f"[{title}]({address})")
    return f"({', '.join(links)})" if links else ""


def _name(mark: str) -> str:
    """What an `entity` is called: its fields are kind, name and a number."""
    kind, _separator, fields = mark.strip("\ue200\ue201").partition(_SEPARATOR)
    if kind != "entity":
        return ""
    try:
        values = json.loads(fields)
    except (ValueError, RecursionError):
        return ""
    is_named = isinstance(values, list) and len(values) > 1
    return text(values[1], _MAX_WORDS) if is_named else ""
