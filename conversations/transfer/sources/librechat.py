"""LibreChat's export of a conversation as JSON, recursive or not. Pure.

In: an object with `conversationId` and either `messagesTree`, where each message has
its answers in `children`, or the list `messages`, whose messages name their parent in
`parentMessageId`. Out: the messages.

Sources: https://www.librechat.ai/docs/features/import_convos,
https://github.com/danny-avila/LibreChat (api/server/utils/import/importers.js)
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
    mapping,
    name,
    nearest,
    objects,
    text,
    time,
    title,
)

PROGRAM = "librechat"


def recognises(value: dict[str, Any]) -> bool:
    has_messages = "messagesTree" in value or isinstance(value.get("messages"), list)
    return "conversationId" in value and has_messages


def read(value: dict[str, Any]) -> SourceConversation:
    """Raises Unreadable."""
    id = name(value.get("conversationId"))
    if id is None:
        raise Unreadable(_("It has no id (`conversationId`)."))
    left_out: Counter[str] = Counter()
    rows, parents = _tree(value)
    texts = {key: words for key, row in rows.items() if (words := _text(row, left_out))}
    messages = [
        SourceMessage(
            id=key,
            parent=nearest(parents[key] or "", parents, texts) or None,
            role="user" if rows[key].get("isCreatedByUser") is True else "assistant",
            text=words,
            at=time(rows[key].get("createdAt")),
            model=text(rows[key].get("model"), 100),
        )
        for key, words in texts.items()
    ]
    times = [message.at for message in messages if message.at]
    return SourceConversation(
        program=PROGRAM,
        id=id,
        title=title(value.get("title")),
        messages=messages,
        at=min(times, default=None),
        changed_at=max(times, default=None),
        model=text(mapping(value.get("options")).get("model"), 100),
        left_out=left_out,
    )


def _tree(
    value: dict[str, Any],
) -> tuple[dict[str, dict[str, Any]], dict[str, str | None]]:
    """Messages and parents by id. A message without an id gets one."""
    rows: dict[str, dict[str, Any]] = {}
    parents: dict[str, str | None] = {}
    listed = value.get("messagesTree") or value.get("messages")
    pending = [(row, "") for row in reversed(objects(listed))]
    while pending:
        row, above = pending.pop()
        key = name(row.get("messageId")) or f"message {len(rows)}"
        if key in rows:
            raise Unreadable(_("Two of its messages have the same id."))
        rows[key] = row
        parents[key] = above or name(row.get("parentMessageId"))
        pending += [(each, key) for each in reversed(objects(row.get("children")))]
    if rows and value.get("branches") is False and "messagesTree" not in value:
        _chain(list(rows), parents)
    return rows, parents


def _chain(keys: list[str], parents: dict[str, str | None]) -> None:
    """Let each message follow the one before: an export without branches may leave
    out the messages that its own name as parents."""
    for number, key in enumerate(keys):
        if parents[key] not in parents:
            parents[key] = keys[number - 1] if number else None


def _text(row: dict[str, Any], left_out: Counter[str]) -> str:
    left_out["pictures and files"] += len(objects(row.get("files")))
    parts = objects(row.get("content"))
    others = [part for part in parts if part.get("type") != "text"]
    left_out["calls of tools and reasoning"] += len(others)
    words = [_part(part.get("text")) for part in parts if part.get("type") == "text"]
    return text(join_texts(words) or text(row.get("text"))).strip()


def _part(value: Any) -> str:
    """The text of a part: a string, or an object with its `value`."""
    return text(value) or text(mapping(value).get("value"))
