"""Files attached to messages: validate, store, and put into requests to providers.

An item refers to a file by id (`{"type": "input_image", "file_id": "file_…"}`). A
provider does not know our ids, so `inline_files` replaces them with the content when a
turn is loaded: a picture or PDF as a `data:` URL, a text file as text with its name.

    UploadRefused    a file, or all of them together, cannot be accepted
    UnknownFile      an item names a file that its conversation does not have
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.files.base import File
from django.db import transaction
from django.db.models import Sum

from conversations.file_kinds import (
    IMAGES,
    KINDS,
    TEXT,
    clean_name,
    content_type_of,
    decoded,
    size_in_words,
)
from conversations.inline_data import inline_size
from conversations.models import Attachment, Conversation, Item, Turn
from llm.wire.items import Item as ItemPayload

_KEPT_BY_US = "file_"  # prefix of our file ids; other ids are a provider's and pass
_FILE_PARTS = ("input_image", "input_file")
_GONE = "[A file stood here that is no longer kept.]"


class UploadRefused(Exception):
    """A file cannot be accepted; the message says why and what to do."""

    def __init__(self, problem: str, code: str, status: int = 400) -> None:
        super().__init__(problem)
        self.code = code
        self.status = status  # of HTTP


class UnknownFile(Exception):
    """A part names a file that does not exist or has another type.

    `param` is the path of the part in the request.
    """

    def __init__(self, param: str, problem: str) -> None:
        super().__init__(problem)
        self.param = param


@dataclass(frozen=True, slots=True)
class Examined:
    """An uploaded file that passed the checks and may be stored."""

    name: str
    content_type: str
    size: int  # bytes
    digest: str
    file: File[bytes]


@dataclass(frozen=True, slots=True)
class Content:
    """A file's content, to be put into a request."""

    name: str
    content_type: str
    data: bytes


# Storing


def examined(owner_id: Any, files: Sequence[File[bytes]]) -> list[Examined]:
    """Check the files of one message. Raises UploadRefused if any of them fails."""
    if len(files) > settings.MAX_UPLOAD_COUNT:
        raise UploadRefused(
            f"A message may have {settings.MAX_UPLOAD_COUNT} files, and these are"
            f" {len(files)}. Send the others with the next message.",
            "too_many_files",
        )
    found = [_examined(file) for file in files]
    _check_quota(owner_id, sum(one.size for one in found))
    return found


def kept(conversation: Conversation, files: Sequence[Examined]) -> list[Attachment]:
    """Store rows and bytes of the files, or neither. Raises UploadRefused where other
    uploads have used up the quota since the files were validated."""
    rows: list[Attachment] = []
    with ExitStack() as unless_kept:
        unless_kept.callback(discard, rows)
        with transaction.atomic():
            users = get_user_model().objects.select_for_update()
            # The row lock serializes the owner's uploads.
            users.get(pk=conversation.owner_id)
            _check_quota(conversation.owner_id, sum(one.size for one in files))
            for one in files:
                rows.append(row := _row(conversation, one))
                one.file.seek(0)
                store(row, row.pk, one.file)
                row.save(force_insert=True)
        unless_kept.pop_all()
    return rows


def store(row: Attachment, name: str, content: File[bytes]) -> None:
    """Write the bytes of a new row. On failure (a full disk) the partial file is
    deleted, as nothing else would delete it."""
    try:
        row.file.save(name, content, save=False)
    except OSError:
        row.file.storage.delete(row.file.field.generate_filename(row, name))
        raise


def check_inline_quota(owner_id: Any, items: Iterable[ItemPayload]) -> None:
    """Check the owner's quota for files inside items (`data:` URLs) that are about to
    be stored in this transaction. Raises UploadRefused."""
    if not (size := inline_size(items)):
        return
    users = get_user_model().objects.select_for_update()
    users.get(pk=owner_id)  # the row lock serializes the owner's uploads
    _check_quota(owner_id, size)


def discard(rows: Iterable[Attachment]) -> None:
    """Delete the files of rows that were never committed."""
    for row in rows:
        if row.file.name:
            row.file.storage.delete(row.file.name)


def is_used(attachment: Attachment) -> bool:
    """True where an item of its conversation contains its id."""
    items = Item.objects.filter(turn__conversation_id=attachment.conversation_id)
    return items.filter(payload__icontains=attachment.pk).exists()


def delete_file(instance: Attachment, **_: Any) -> None:
    """`post_delete` receiver: deletes the row's file once the transaction commits."""
    storage, name = instance.file.storage, instance.file.name
    if name:
        transaction.on_commit(lambda: storage.delete(name))


def _examined(file: File[bytes]) -> Examined:
    given = file.name or ""
    size = file.size
    shown = f"“{clean_name(given, TEXT)}”"
    if not size:
        raise UploadRefused(f"{shown} is empty.", "empty_file")
    _check_size(shown, size, settings.MAX_UPLOAD_SIZE, "a file")
    file.seek(0)
    data = file.read()
    content_type = content_type_of(data)
    if content_type is None:
        raise UploadRefused(
            f"{shown} is of a kind that models do not read. {KINDS} can be sent.",
            "unsupported_file",
            415,
        )
    if content_type == TEXT:  # sent as part of the message, so its limit applies
        _check_size(shown, size, settings.MAX_INPUT_SIZE, "a text file")
    digest = hashlib.sha256(data).hexdigest()
    return Examined(clean_name(given, content_type), content_type, size, digest, file)


def _check_size(shown: str, size: int, limit: int, what: str) -> None:
    if size > limit:
        raise UploadRefused(
            f"{shown} has {size_in_words(size)}, and {what} may have"
            f" {size_in_words(limit)}.",
            "file_too_large",
            413,
        )


def _check_quota(owner_id: Any, more: int) -> None:
    owned = Attachment.objects.filter(conversation__owner_id=owner_id)
    size = owned.aggregate(size=Sum("size"))["size"] or 0
    # Files inside messages (`data:` URLs) have no attachment rows.
    inside = Turn.objects.filter(conversation__owner_id=owner_id, inline_bytes__gt=0)
    size += inside.aggregate(size=Sum("inline_bytes"))["size"] or 0
    if size + more > settings.UPLOAD_QUOTA:
        raise UploadRefused(
            f"Your files have {size_in_words(size)} already, and with these they would"
            f" have more than the {size_in_words(settings.UPLOAD_QUOTA)} that are kept"
            " for you. Files of deleted conversations count until they are erased; the"
            " staff can make room.",
            "quota_exceeded",
            413,
        )


def _row(conversation: Conversation, one: Examined) -> Attachment:
    return Attachment(
        conversation=conversation,
        name=one.name,
        content_type=one.content_type,
        size=one.size,
    )


# File ids in items


def attachments_of(items: Iterable[ItemPayload]) -> list[str]:
    """The ids of stored files that the items name, each once, in order."""
    return list(dict.fromkeys(part["file_id"] for _, part in _named(items)))


def admitted(conversation: Conversation, items: Sequence[ItemPayload]) -> Sequence[Any]:
    """The items, with the name of each file added to its part.

    Raises UnknownFile, for a file of another conversation too.
    """
    named = list(_named(items))
    if not named:
        return items
    rows = conversation.attachments.in_bulk([part["file_id"] for _, part in named])
    for where, part in named:
        row = rows.get(part["file_id"])
        if row is None:
            problem = "there is no such file in this conversation."
            raise UnknownFile(f"{where}.file_id", problem)
        if part["type"] == "input_image" and row.content_type not in IMAGES:
            problem = "this file is no picture; send it as 'input_file'."
            raise UnknownFile(f"{where}.file_id", problem)
    if len(rows) > settings.MAX_UPLOAD_COUNT:
        problem = f"a message may have {settings.MAX_UPLOAD_COUNT} files."
        raise UnknownFile("input", problem)
    names = {pk: row.name for pk, row in rows.items()}
    return [_with_parts(item, lambda part: _titled(part, names)) for item in items]


def parts_for(rows: Iterable[Attachment]) -> list[dict[str, Any]]:
    """The content parts of a message that has these files attached."""
    return [
        {"type": "input_image", "file_id": row.pk, "detail": "auto"}
        if row.content_type in IMAGES
        else {"type": "input_file", "file_id": row.pk, "filename": row.name}
        for row in rows
    ]


def _titled(part: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    if part["type"] != "input_file":
        return part
    return {"filename": names[part["file_id"]], **part}


# Content for providers


def contents(conversation_id: str, ids: Collection[str]) -> dict[str, Content]:
    """The files of a conversation by id; files that no longer exist are left out.

    Makes one query, or none if `ids` is empty.
    """
    if not ids:
        return {}
    rows = Attachment.objects.filter(conversation_id=conversation_id, pk__in=ids)
    return {row.pk: content for row in rows if (content := _content(row))}


def inlined(
    items: Iterable[ItemPayload], attachments: Mapping[str, Content]
) -> list[ItemPayload]:
    """The items with file ids replaced by contents in the form that every provider
    accepts. Pure.

    A file that no longer exists is replaced by a note, so that the conversation can
    still be continued.
    """
    return [_with_parts(item, lambda part: _sent(part, attachments)) for item in items]


def _content(row: Attachment) -> Content | None:
    try:
        with row.file.open("rb") as file:
            return Content(row.name, row.content_type, file.read())
    except FileNotFoundError:
        return None


def _sent(part: dict[str, Any], attachments: Mapping[str, Content]) -> dict[str, Any]:
    content = attachments.get(part["file_id"])
    if content is None:
        return {"type": "input_text", "text": _GONE}
    if content.content_type == TEXT:
        name = content.name.replace('"', "'")
        text = decoded(content.data) or ""
        told = f'<file name="{name}">\n{text}\n</file>'
        return {"type": "input_text", "text": told}
    url = f"data:{content.content_type};base64,{b64encode(content.data).decode()}"
    if content.content_type in IMAGES:
        detail = part.get("detail") or "auto"
        return {"type": "input_image", "image_url": url, "detail": detail}
    return {"type": "input_file", "filename": content.name, "file_data": url}


# Items and their parts


def _named(items: Iterable[ItemPayload]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts that name stored files, each with its path in the request."""
    for number, item in enumerate(items):
        for field in _fields(item):
            for place, part in enumerate(item[field]):
                if _is_ours(part):
                    yield f"input[{number}].{field}[{place}]", part


def _with_parts(item: ItemPayload, change: Any) -> ItemPayload:
    """`item` with `change` applied to each part that names a stored file; `item` itself
    where there is no such part."""
    changed = {
        field: [change(part) if _is_ours(part) else part for part in item[field]]
        for field in _fields(item)
        if any(map(_is_ours, item[field]))
    }
    return {**item, **changed} if changed else item


def _fields(item: ItemPayload) -> list[str]:
    return [name for name in ("content", "output") if isinstance(item.get(name), list)]


def _is_ours(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and part.get("type") in _FILE_PARTS
        and isinstance(part.get("file_id"), str)
        and part["file_id"].startswith(_KEPT_BY_US)
    )
