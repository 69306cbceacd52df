"""Open WebUI's `chat-export-….json`. Pure.

In: an object whose `chat.history` has `messages` by id, each with `parentId`, and
`currentId`; older exports have only the list `chat.messages`. Out: the messages.
Reasoning and calls of tools are `<details>` elements of the text and are left out.

Source: https://docs.openwebui.com/features/chat-conversations/data-controls/import-export/
"""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from typing import Any

from django.utils.translation import gettext as _

from conversations.transfer.source import (
    SourceConversation,
    SourceMessage,
    Unreadable,
    join_texts,
    mapping,
    name,
    nearest,
    objects,
    text,
    time,
    title,
)

PROGRAM = "open-webui"
_TAG = re.compile(r"<details\b|</details>")
#: What the program itself writes into answers; people write other elements.
_DETAILS = re.compile(r'<details type="(?:reasoning|tool_calls|code_interpreter)"')


def recognises(value: dict[str, Any]) -> bool:
    chat = mapping(value.get("chat"))
    return "history" in chat or "messages" in chat


def read(value: dict[str, Any]) -> SourceConversation:
    """Raises Unreadable."""
    chat, meta = mapping(value.get("chat")), mapping(value.get("meta"))
    id = name(value.get("id")) or name(chat.get("id"))
    if id is None:
        raise Unreadable(_("It has no id."))
    left_out: Counter[str] = Counter()
    rows, parents, current = _tree(chat)
    texts = {
        key: words
        for key, row in rows.items()
        if row.get("role") in ("user", "assistant") and (words := _text(row, left_out))
    }
    messages = [
        SourceMessage(
            id=key,
            parent=nearest(parents[key] or "", parents, texts) or None,
            role=rows[key]["role"],
            text=words,
            at=time(rows[key].get("timestamp")),
            model=text(rows[key].get("model"), 100),
        )
        for key, words in texts.items()
    ]
    models = chat.get("models")
    return SourceConversation(
        program=PROGRAM,
        id=id,
        title=title(value.get("title")) or title(chat.get("title")),
        messages=messages,
        current=nearest(current, parents, texts),
        at=time(value.get("created_at")) or time(chat.get("timestamp")),
        changed_at=time(value.get("updated_at")),
        model=text(models[0], 100) if isinstance(models, list) and models else "",
        is_archived=value.get("archived") is True,
        is_pinned=value.get("pinned") is True,
        tags=_tags(meta.get("tags") or chat.get("tags")),
        left_out=left_out,
    )


def _tree(
    chat: dict[str, Any],
) -> tuple[dict[str, dict[str, Any]], dict[str, str | None], str]:
    """Messages and parents by id, and the id of the current one."""
    history = mapping(chat.get("history"))
    if named := mapping(history.get("messages")):
        rows = {k: row for k, row in named.items() if name(k) and mapping(row)}
        parents = {key: name(row.get("parentId")) for key, row in rows.items()}
        return rows, parents, name(history.get("currentId")) or ""
    listed = objects(chat.get("messages"))
    rows = {f"message {number}": row for number, row in enumerate(listed)}
    parents = {
        f"message {number}": f"message {number - 1}" if number else None
        for number in range(len(listed))
    }
    return rows, parents, f"message {len(listed) - 1}"


def _text(row: dict[str, Any], left_out: Counter[str]) -> str:
    left_out["pictures and files"] += len(objects(row.get("files")))
    content = row.get("content")
    if isinstance(content, list):  # parts, as in OpenAI's API
        parts = objects(content)
        others = [part for part in parts if part.get("type") != "text"]
        left_out["pictures and files"] += len(others)
        return text(join_texts(text(part.get("text")) for part in parts))
    words = text(content)
    if row.get("role") == "assistant":
        words = _without_details(words, left_out)
    return words.strip()


def _without_details(words: str, left_out: Counter[str]) -> str:
    """The text without the `<details>` elements of the program, in linear time."""
    kept, at = [], 0
    for begin, end in _elements(words):
        if begin >= at and _DETAILS.match(words, begin):
            kept.append(words[at:begin])
            left_out["calls of tools and reasoning"] += 1
            at = end
    return "".join([*kept, words[at:]])


def _elements(words: str) -> list[tuple[int, int]]:
    """Begin and end of each `<details>` element, by their begins. One that lacks its
    end, since its text names such an element, goes to the next end."""
    opened: list[int] = []
    closed: list[int] = []
    found = []
    for tag in _TAG.finditer(words):
        if tag[0] != "</details>":
            opened.append(tag.start())
            continue
        closed.append(tag.end())
        if opened:
            found.append((opened.pop(), tag.end()))
    for begin in opened:
        after = bisect(closed, begin)
        if after < len(closed):
            found.append((begin, closed[after]))
    return sorted(found)


def _tags(value: Any) -> list[str]:
    """Names; older exports have objects with a name."""
    if not isinstance(value, list):
        return []
    names = [mapping(tag).get("name", tag) for tag in value[:20]]
    return [found for each in names if (found := title(each)[:50])]
