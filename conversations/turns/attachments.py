"""Files attached to messages: validate, store, and put into requests to providers.

An item refers to a file by id (`{"type": "input_image", "file_id": "file_…"}`). A
provider does not know our ids, so `inline_files` replaces them with the content when a
turn is loaded: a picture or PDF as a `data:` URL, a text file as text with its name.

    UploadRefused    a file, or all of them together, cannot be accepted
    UnknownFile      an item names a file that its conversation does not have
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.files.base import ContentFile, File
from django.db import DatabaseError, transaction
from django.db.models import Q, Sum
from django.utils.translation import gettext as _

from conversations.input.checks import inline_contents, inline_size
from conversations.models import (
    Attachment,
    Conversation,
    ConversationImport,
    FolderFile,
    Item,
    Participant,
    Turn,
)
from conversations.turns.file_contents import FileContent, content_part
from conversations.turns.file_deletion import (
    delete_later,
    delete_uncommitted,
    note_upload,
)
from conversations.turns.file_kinds import (
    IMAGES,
    TEXT,
    clean_name,
    content_type_of,
    decode_text,
    format_size,
)
from conversations.turns.file_storage import FilesUnavailable
from conversations.turns.office_files import text_of_office_file
from conversations.turns.upload_refused import UploadRefused as UploadRefused
from conversations.turns.upload_refused import unsupported
from conversations.turns.virus_scan import scan
from llm.office.text import is_office_file
from llm.wire.items import Item as ItemPayload
from tools.execute import CallOutcome

INFECTED = "infected_file"  # code of a file that the virus scanner refuses
logger = logging.getLogger(__name__)

#: Rows that name a stored file.
StoredRow = Attachment | FolderFile | ConversationImport
_ID_PREFIX = "file_"  # prefix of our file ids; other ids are a provider's and pass
_FILE_PARTS = ("input_image", "input_file")
MISSING_FILE_NOTE = "[A file stood here that is no longer kept.]"


class UnknownFile(Exception):
    """A part names a file that does not exist or has another type.

    `param` is the path of the part in the request.
    """

    def __init__(self, param: str, problem: str) -> None:
        super().__init__(problem)
        self.param = param


@dataclass(frozen=True, slots=True)
class ValidatedFile:
    """An uploaded file that passed the checks and may be stored."""

    name: str
    content_type: str
    size: int  # bytes
    digest: str
    file: File[bytes]


# Storing


def validate_files(owner_id: Any, files: Sequence[File[bytes]]) -> list[ValidatedFile]:
    """Check the files of one message. Raises UploadRefused if any of them fails."""
    if len(files) > settings.MAX_UPLOAD_COUNT:
        words = _(
            "A message may have %(limit)s files, not %(count)s. Send the others with"
            " the next message."
        )
        counts = {"limit": settings.MAX_UPLOAD_COUNT, "count": len(files)}
        raise UploadRefused(words % counts, "too_many_files")
    validated = [_validate_file(file) for file in files]
    check_quota(owner_id, sum(one.size for one in validated))
    return validated


def save_attachments(
    conversation: Conversation, files: Sequence[ValidatedFile], user: Any = None
) -> list[Attachment]:
    """Store the user's files in the conversation, by default those of its owner: rows
    and bytes of the files, or neither. Raises UploadRefused where other uploads have
    used up the quota since the files were validated."""
    with ExitStack() as rollback:
        rows = store_files(files)
        rollback.callback(discard, rows)
        insert_stored(conversation, rows, user)
        rollback.pop_all()
    return rows


def store_files(files: Sequence[ValidatedFile]) -> list[Attachment]:
    """Write the bytes, all or none. Returns the rows for `insert_stored`, or to be
    discarded. Not called within a transaction, whose locks a slow storage would
    hold."""
    rows: list[Attachment] = []
    with ExitStack() as rollback:
        rollback.callback(discard, rows)
        for file in files:
            row = Attachment(
                name=file.name, content_type=file.content_type, size=file.size
            )
            rows.append(row)
            file.file.seek(0)
            store(row, row.pk, file.file)
        rollback.pop_all()
    return rows


@transaction.atomic
def insert_stored(
    conversation: Conversation, rows: Sequence[Attachment], user: Any = None
) -> None:
    """Insert rows whose bytes are stored. Raises UploadRefused as `save_attachments`,
    within a transaction that is then rolled back."""
    owner_id = conversation.owner_id
    user_id = owner_id if user is None else user.pk
    users = get_user_model().objects.select_for_update()
    users.get(pk=user_id)  # the row lock serializes the user's uploads
    check_quota(user_id, sum(row.size for row in rows))
    for row in rows:
        row.conversation = conversation
        row.uploaded_by_id = None if user_id == owner_id else user_id
        row.save(force_insert=True)


def store(row: StoredRow, name: str, content: File[bytes]) -> None:
    """Write the bytes of a new row. On failure (a full disk) the partial file is
    deleted at once; the file of a process that dies before the row is committed,
    later."""
    path = row.file.field.generate_filename(row, name)
    note_upload(path)
    try:
        row.file = row.file.storage.save(path, content)
    except OSError:
        delete_uncommitted([path])
        raise


def store_texts(
    conversation_id: str, outcomes: Iterable[CallOutcome]
) -> list[Attachment]:
    """Store the full outputs of calls, of which the model reads only the beginning, as
    files of the conversation. Returns their rows, which are to be saved.

    Called before the transaction, which a slow storage would hold open. A result is
    not lost because its file cannot be stored.
    """
    rows: list[Attachment] = []
    with ExitStack() as rollback:
        rollback.callback(discard, rows)
        for outcome in outcomes:
            if outcome.full_text is None or outcome.state == "background":
                continue
            content = outcome.full_text.encode()
            row = Attachment(
                conversation_id=conversation_id,
                name=f"{outcome.call_id}.txt",
                content_type=TEXT,
                size=len(content),
            )
            try:
                store(row, f"{row.pk}.txt", ContentFile(content))
            except FilesUnavailable:
                logger.warning("the full output of %s is not stored", outcome.call_id)
            else:
                rows.append(row)
        rollback.pop_all()
    return rows


def save_texts(conversation_id: str, outcomes: Iterable[CallOutcome]) -> None:
    """Store the full outputs of calls whose results are committed, and their rows."""
    rows = store_texts(conversation_id, outcomes)
    try:
        with transaction.atomic():
            for row in rows:
                row.save(force_insert=True)
    except DatabaseError as exc:  # the conversation may be erased
        text = "%d full outputs are not stored: %s"
        logger.warning(text, len(rows), type(exc).__name__)
        discard(rows)


def check_inline_quota(owner_id: Any, items: Iterable[ItemPayload]) -> None:
    """Check the owner's quota for files inside items (`data:` URLs) that are about to
    be stored in this transaction, and scan them. Raises UploadRefused."""
    items = list(items)
    if not (size := inline_size(items)):
        return
    if settings.CLAMD_ADDRESS:
        for data in inline_contents(items):
            check_scanned(data)
    users = get_user_model().objects.select_for_update()
    users.get(pk=owner_id)  # the row lock serializes the owner's uploads
    check_quota(owner_id, size)


def discard(rows: Iterable[StoredRow]) -> None:
    """Delete the files of rows that were not committed, after their transaction."""
    delete_uncommitted(row.file.name for row in rows if row.file.name)


def is_used(attachment: Attachment) -> bool:
    """True where an item of its conversation contains its id."""
    items = Item.objects.filter(turn__conversation_id=attachment.conversation_id)
    return items.filter(payload__icontains=attachment.pk).exists()


def is_shown(attachment: Attachment) -> bool:
    """True where a turn that is not deleted names it, perhaps before its run ends."""
    turns = Turn.objects.filter(
        conversation=attachment.conversation_id, deleted_at=None
    )
    items = Item.objects.filter(turn__in=turns, payload__icontains=attachment.pk)
    return items.exists() or turns.filter(partial__icontains=attachment.pk).exists()


def delete_file(instance: Attachment, **_: Any) -> None:
    """`post_delete` receiver: deletes the row's file once the transaction commits,
    unless a copy of the conversation names it then."""
    delete_later([instance.file.name or ""])


def delete_folder_file(instance: FolderFile, **_: Any) -> None:
    """`post_delete` receiver: deletes the row's file once the transaction commits."""
    delete_later([instance.file.name or ""])


def _validate_file(file: File[bytes]) -> ValidatedFile:
    data = _read(file)
    if not is_office_file(data):
        return _validate_content(file, data, content_type_of(data))
    check_scanned(data)
    file = text_of_office_file(clean_name(file.name or "", TEXT), data)
    data = _read(file)
    # Its first words may be those of another kind of file.
    is_text = decode_text(data) is not None
    return _validate_content(file, data, TEXT if is_text else None)


def _read(file: File[bytes]) -> bytes:
    size = file.size
    named = {"name": clean_name(file.name or "", TEXT)}
    if not size:
        raise UploadRefused(_("“%(name)s” is empty.") % named, "empty_file")
    limit = settings.MAX_UPLOAD_SIZE
    if size > limit:
        words = _("“%(name)s” has %(size)s; the limit for a file is %(limit)s.")
        raise _too_large(words, named, size, limit)
    file.seek(0)
    data: bytes = file.read()
    return data


def _validate_content(
    file: File[bytes], data: bytes, content_type: str | None
) -> ValidatedFile:
    size = len(data)
    original_name = file.name or ""
    named = {"name": clean_name(original_name, TEXT)}
    if content_type is None:
        raise unsupported(named["name"])
    # Sent as part of the message, so its limit applies.
    if content_type == TEXT and size > (limit := settings.MAX_INPUT_SIZE):
        words = _("“%(name)s” has %(size)s; the limit for a text file is %(limit)s.")
        raise _too_large(words, named, size, limit)
    check_scanned(data)
    digest = hashlib.sha256(data).hexdigest()
    return ValidatedFile(
        clean_name(original_name, content_type), content_type, size, digest, file
    )


def check_scanned(data: bytes) -> None:
    """Raises UploadRefused, also if the scanner does not answer."""
    match scan(data):
        case "infected":
            words = _("The virus scanner refuses this file.")
            raise UploadRefused(words, INFECTED)
        case "not scanned":
            words = _("The virus scanner does not answer. Send the file again later.")
            raise UploadRefused(words, "scanner_unavailable", 503)


def _too_large(
    words: str, named: Mapping[str, str], size: int, limit: int
) -> UploadRefused:
    sizes = {"size": format_size(size), "limit": format_size(limit)}
    return UploadRefused(words % {**named, **sizes}, "file_too_large", 413)


def check_quota(owner_id: Any, more: int) -> None:
    own = Q(conversation__owner_id=owner_id, uploaded_by=None)
    owned = Attachment.objects.filter(own | Q(uploaded_by=owner_id))
    size = owned.aggregate(size=Sum("size"))["size"] or 0
    # Files inside messages (`data:` URLs) have no attachment rows.
    with_files = Turn.objects.filter(inline_bytes__gt=0)
    own_turns = with_files.filter(conversation__owner_id=owner_id, author=None)
    size += own_turns.aggregate(size=Sum("inline_bytes"))["size"] or 0
    joined = Participant.objects.filter(user=owner_id).values("conversation")
    elsewhere = with_files.filter(conversation__in=joined, author=owner_id)
    size += elsewhere.aggregate(size=Sum("inline_bytes"))["size"] or 0
    in_folders = FolderFile.objects.filter(folder__owner_id=owner_id)
    size += in_folders.aggregate(size=Sum("size"))["size"] or 0
    if size + more > settings.UPLOAD_QUOTA:
        raise UploadRefused(
            _(
                "Your files have %(size)s already; with these they would exceed your"
                " quota of %(quota)s. Files of deleted conversations count until they"
                " are erased; ask the staff to erase them."
            )
            % {"size": format_size(size), "quota": format_size(settings.UPLOAD_QUOTA)},
            "quota_exceeded",
            413,
        )


# File ids in items


def attachment_ids(items: Iterable[ItemPayload]) -> list[str]:
    """The ids of stored files that the items name, each once, in order."""
    return list(dict.fromkeys(part["file_id"] for _, part in _file_parts(items)))


def resolve_file_parts(
    conversation: Conversation, items: Sequence[ItemPayload]
) -> Sequence[Any]:
    """The items, with the name of each file added to its part.

    Raises UnknownFile, for a file of another conversation too.
    """
    file_parts = list(_file_parts(items))
    if not file_parts:
        return items
    rows = conversation.attachments.in_bulk([part["file_id"] for _, part in file_parts])
    for path, part in file_parts:
        row = rows.get(part["file_id"])
        if row is None:
            problem = "there is no such file in this conversation."
            raise UnknownFile(f"{path}.file_id", problem)
        if part["type"] == "input_image" and row.content_type not in IMAGES:
            problem = "this file is not a picture; send it as 'input_file'."
            raise UnknownFile(f"{path}.file_id", problem)
    if len(rows) > settings.MAX_UPLOAD_COUNT:
        problem = f"a message may have {settings.MAX_UPLOAD_COUNT} files."
        raise UnknownFile("input", problem)
    names = {pk: row.name for pk, row in rows.items()}
    return [
        _with_parts(item, lambda part: _with_file_name(part, names)) for item in items
    ]


def parts_for(rows: Iterable[Attachment]) -> list[dict[str, Any]]:
    """The content parts of a message that has these files attached."""
    return [
        {"type": "input_image", "file_id": row.pk, "detail": "auto"}
        if row.content_type in IMAGES
        else {"type": "input_file", "file_id": row.pk, "filename": row.name}
        for row in rows
    ]


def _with_file_name(part: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    if part["type"] != "input_file":
        return part
    return {"filename": names[part["file_id"]], **part}


# Content for providers


def attachments_of(conversation_id: str, ids: Collection[str]) -> Sequence[Attachment]:
    """The files of the conversation with these ids, in one query, or none without."""
    if not ids:
        return ()
    rows = Attachment.objects.filter(conversation_id=conversation_id, pk__in=ids)
    return list(rows)


def inline_files(
    items: Iterable[ItemPayload], attachments: Mapping[str, FileContent]
) -> list[ItemPayload]:
    """The items with file ids replaced by contents in the form that every provider
    accepts. Pure.

    A file that no longer exists is replaced by a note, so that the conversation can
    still be continued.
    """
    return [
        _with_parts(item, lambda part: _inline_part(part, attachments))
        for item in items
    ]


def _inline_part(
    part: dict[str, Any], attachments: Mapping[str, FileContent]
) -> dict[str, Any]:
    content = attachments.get(part["file_id"])
    if content is None:
        return {"type": "input_text", "text": MISSING_FILE_NOTE}
    return content_part(content, part.get("detail") or "auto")


# Items and their parts


def _file_parts(items: Iterable[ItemPayload]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts that name stored files, each with its path in the request."""
    for item_index, item in enumerate(items):
        for field in _fields(item):
            for index, part in enumerate(item[field]):
                if _is_stored_file(part):
                    yield f"input[{item_index}].{field}[{index}]", part


def _with_parts(item: ItemPayload, change: Any) -> ItemPayload:
    """`item` with `change` applied to each part that names a stored file; `item` itself
    where there is no such part."""
    changed = {
        field: [change(part) if _is_stored_file(part) else part for part in item[field]]
        for field in _fields(item)
        if any(map(_is_stored_file, item[field]))
    }
    return {**item, **changed} if changed else item


def _fields(item: ItemPayload) -> list[str]:
    return [name for name in ("content", "output") if isinstance(item.get(name), list)]


def _is_stored_file(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and part.get("type") in _FILE_PARTS
        and isinstance(part.get("file_id"), str)
        and part["file_id"].startswith(_ID_PREFIX)
    )
