"""Files of folders: check them and store them, for pages and REST."""

from __future__ import annotations

from contextlib import ExitStack
from uuid import uuid4

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.files.base import File
from django.db import transaction
from django.db.models import QuerySet, Sum
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from conversations.models import Folder, FolderFile
from conversations.models.folder import MAX_FOLDER_FILES, MAX_FOLDER_TEXT
from conversations.turns.attachments import (
    UploadRefused,
    ValidatedFile,
    check_quota,
    discard,
    store,
    validate_files,
)
from conversations.turns.file_kinds import TEXT, decode_text

_CODE = "file_refused"


def add_folder_file(folder: Folder, file: File[bytes]) -> FolderFile:
    """Store what a message may have as a file: row and bytes, or neither. Raises
    UploadRefused."""
    (validated,) = validate_files(folder.owner_id, [file])
    row = _row(folder, validated)
    with ExitStack() as rollback:
        rollback.callback(discard, [row])
        if row.content_type != TEXT:
            # Before the transaction: a slow storage would hold its locks.
            validated.file.seek(0)
            store(row, uuid4().hex, validated.file)
        with transaction.atomic():
            users = get_user_model()._default_manager.select_for_update()
            # The row lock serializes the user's uploads.
            users.get(pk=folder.owner_id)
            check_quota(folder.owner_id, row.size)
            _check_room(row)
            row.save(force_insert=True)
        rollback.pop_all()
    return row


def _row(folder: Folder, validated: ValidatedFile) -> FolderFile:
    row = FolderFile(
        folder=folder,
        name=validated.name,
        content_type=validated.content_type,
        size=validated.size,
    )
    if row.content_type == TEXT:
        validated.file.seek(0)
        row.text = decode_text(validated.file.read()) or ""
        row.size = len(row.text.encode())
    return row


def _check_room(row: FolderFile) -> None:
    """Check what the files of a folder may be together: each turn is sent them."""
    stored = FolderFile.objects.filter(folder=row.folder)
    if stored.count() >= MAX_FOLDER_FILES:
        words = _("A folder can have %(count)s files; remove one first.")
        raise UploadRefused(words % {"count": MAX_FOLDER_FILES}, _CODE)
    if row.content_type == TEXT:
        _check_text(stored, row)
    elif stored.exclude(content_type=TEXT).count() >= settings.MAX_UPLOAD_COUNT:
        words = _(
            "A folder can have %(count)s pictures and documents; remove one first."
        )
        raise UploadRefused(words % {"count": settings.MAX_UPLOAD_COUNT}, _CODE)


def _check_text(stored: QuerySet[FolderFile], row: FolderFile) -> None:
    if not row.text.strip():
        raise UploadRefused(_("The file is empty; choose another one."), _CODE)
    texts = stored.filter(content_type=TEXT)
    size = row.size + (texts.aggregate(size=Sum("size"))["size"] or 0)
    if size > MAX_FOLDER_TEXT:
        words = _(
            "The texts of a folder may have %(limit)s bytes together; these would have"
            " %(size)s. Remove one first."
        )
        sizes = {"limit": _grouped(MAX_FOLDER_TEXT), "size": _grouped(size)}
        raise UploadRefused(words % sizes, _CODE)


def _grouped(number: int) -> str:
    return number_format(number, force_grouping=True)
