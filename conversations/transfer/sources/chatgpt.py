"""ChatGPT's `conversations.json`, as its data export has it. Pure.

In: an object with `mapping`, a tree of nodes by id, and `current_node`. Out: the
messages of user and assistant. System messages, tools' messages and reasoning are left
out, and pictures and files, which the JSON only names.

Sources: https://help.openai.com/en/articles/7260999 (how it is exported),
https://portable-ai-memory.org/providers/openai,
https://whychose.com/seo/chatgpt-conversations-json-format (the fields)
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
from conversations.transfer.sources.chatgpt_citations import replace_marks

PROGRAM = "chatgpt"
_TEXTS = ("text", "multimodal_text", "code")


def recognises(value: dict[str, Any]) -> bool:
    return isinstance(value.get("mapping"), dict)


def read(value: dict[str, Any]) -> SourceConversation:
    """Raises Unreadable."""
    id = name(value.get("conversation_id")) or name(value.get("id"))
    if id is None:
        raise Unreadable(_("It has no id."))
    left_out: Counter[str] = Counter()
    nodes = {
        key: node
        for key, node in value["mapping"].items()
        if name(key) and isinstance(node, dict)
    }
    parents = {key: name(node.get("parent")) for key, node in nodes.items()}
    read_nodes = {key: _message(node, left_out) for key, node in nodes.items()}
    kept = {key: found for key, found in read_nodes.items() if found}
    messages = [
        SourceMessage(
            id=key,
            parent=nearest(parents[key] or "", parents, kept) or None,
            role=role,
            text=words,
            at=time(fields.get("create_time")),
            model=text(mapping(fields.get("metadata")).get("model_slug"), 100),
        )
        for key, (role, words, fields) in kept.items()
    ]
    return SourceConversation(
        program=PROGRAM,
        id=id,
        title=title(value.get("title")),
        messages=messages,
        current=nearest(name(value.get("current_node")) or "", parents, kept),
        at=time(value.get("create_time")),
        changed_at=time(value.get("update_time")),
        model=text(value.get("default_model_slug"), 100),
        is_archived=value.get("is_archived") is True,
        is_pinned=value.get("is_starred") is True,
        left_out=left_out,
    )


def _message(
    node: dict[str, Any], left_out: Counter[str]
) -> tuple[str, str, dict[str, Any]] | None:
    """Role, text and fields of the node's message; None if it is left out."""
    fields = mapping(node.get("message"))
    if not fields:
        return None
    if mapping(fields.get("metadata")).get("is_visually_hidden_from_conversation"):
        return None
    role = mapping(fields.get("author")).get("role")
    content = mapping(fields.get("content"))
    kind = content.get("content_type")
    if role == "system" or kind == "user_editable_context":
        return None
    if role not in ("user", "assistant"):
        left_out["messages of tools"] += 1
        return None
    if kind not in _TEXTS or fields.get("recipient", "all") not in ("all", None):
        left_out["calls of tools and reasoning"] += 1
        return None
    metadata = mapping(fields.get("metadata"))
    words = _text(content)
    if role == "assistant":
        words = replace_marks(words, metadata.get("content_references"))
    files = _other_files(content, metadata)
    pictures = [part for part in objects(content.get("parts")) if _is_picture(part)]
    left_out["pictures and files"] += len(files) + len(pictures)
    # A message of files alone would be missing, and the answers to it follow another.
    words = words or join_texts(f"[{each}]" for each in files if each)
    return (role, words, fields) if words else None


def _text(content: dict[str, Any]) -> str:
    parts = content.get("parts")
    if not isinstance(parts, list):
        return text(content.get("text"))
    texts = [part if isinstance(part, str) else _spoken(part) for part in parts]
    return text(join_texts(texts))


def _is_picture(part: dict[str, Any]) -> bool:
    return "asset_pointer" in part


def _other_files(content: dict[str, Any], metadata: dict[str, Any]) -> list[str]:
    """Names of the files that were attached, without the pictures among the parts."""
    pointers = [
        text(each.get("asset_pointer")) for each in objects(content.get("parts"))
    ]
    shown = {pointer.rpartition("/")[2] for pointer in pointers}
    attached = objects(metadata.get("attachments"))
    others = [each for each in attached if text(each.get("id"), 200) not in shown]
    return [title(each.get("name")) for each in others]


def _spoken(part: Any) -> str:
    """The transcript of a spoken message."""
    return text(mapping(part).get("text"))
