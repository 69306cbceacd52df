"""Claude's `conversations.json`, as claude.ai's data export has it. Pure.

In: an object with `chat_messages`, each with `sender` ("human" or "assistant"), `text`
or blocks of `content`, and in newer exports `parent_message_uuid`; older ones are a
list in order. Out: the messages; text that Claude read from attached files is part of
the message, files themselves are not exported.

Sources: https://support.claude.com/en/articles/9450526 (how it is exported),
https://tomzxcode.github.io/llm-conversations-viewer/docs/formats (the fields)
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.utils.translation import gettext as _

from conversations.transfer.source import (
    SourceConversation,
    SourceMessage,
    Unreadable,
    join_texts,
    name,
    nearest,
    objects,
    text,
    time,
    title,
)

PROGRAM = "claude"
_ROLES = {"human": "user", "assistant": "assistant"}


def recognises(value: dict[str, Any]) -> bool:
    return isinstance(value.get("chat_messages"), list)


def read(value: dict[str, Any]) -> SourceConversation:
    """Raises Unreadable."""
    id = name(value.get("uuid"))
    if id is None:
        raise Unreadable(_("It has no id (`uuid`)."))
    left_out: Counter[str] = Counter()
    rows = objects(value["chat_messages"])
    keys = [name(row.get("uuid")) or f"message {n}" for n, row in enumerate(rows)]
    known = set(keys)
    is_tree = any(name(row.get("parent_message_uuid")) in known for row in rows)
    parents: dict[str, str | None] = {}
    texts = {}
    for number, (key, row) in enumerate(zip(keys, rows, strict=True)):
        before = keys[number - 1] if number else None
        parents[key] = name(row.get("parent_message_uuid")) if is_tree else before
        if name(row.get("sender")) in _ROLES and (words := _text(row, left_out)):
            texts[key] = words
    messages = [
        SourceMessage(
            id=key,
            parent=nearest(parents[key] or "", parents, texts) or None,
            role=_ROLES[row["sender"]],
            text=texts[key],
            at=time(row.get("created_at")),
        )
        for key, row in zip(keys, rows, strict=True)
        if key in texts
    ]
    return SourceConversation(
        program=PROGRAM,
        id=id,
        title=title(value.get("name")),
        messages=messages,
        current=nearest(_leaf(value, keys), parents, texts),
        at=time(value.get("created_at")),
        changed_at=time(value.get("updated_at")),
        model=text(value.get("model"), 100),
        is_pinned=value.get("is_starred") is True,
        left_out=left_out,
    )


def _leaf(value: dict[str, Any], keys: list[str]) -> str:
    leaf = name(value.get("current_leaf_message_uuid"))
    return leaf or (keys[-1] if keys else "")


def _text(row: dict[str, Any], left_out: Counter[str]) -> str:
    blocks = objects(row.get("content"))
    others = [block for block in blocks if block.get("type") != "text"]
    left_out["calls of tools and reasoning"] += len(others)
    words = [text(block.get("text")) for block in blocks if block.get("type") == "text"]
    attached = [_attached(each) for each in objects(row.get("attachments"))]
    left_out["pictures and files"] += len(objects(row.get("files")))
    return text(join_texts([*attached, join_texts(words) or text(row.get("text"))]))


def _attached(attachment: dict[str, Any]) -> str:
    content = text(attachment.get("extracted_content"))
    file = title(attachment.get("file_name")) or "file"
    return f"[{file}]\n{content}" if content.strip() else ""
