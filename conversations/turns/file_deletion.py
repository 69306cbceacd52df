"""Deletion of stored files that no row names.

The names are written in the transaction that deletes the rows. Files on this machine
are deleted when it commits; those of a bucket, which may answer slowly or not at all,
by the periodic job `delete_files`. The name of a new file is noted before the file is
written, because its process may die before the row is committed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from django.core.files.storage import default_storage
from django.db import DatabaseError, transaction
from django.db.models import QuerySet

from conversations.models import (
    Attachment,
    ConversationImport,
    FileDeletion,
    FolderFile,
)
from conversations.turns.file_storage import FilesUnavailable, are_local

logger = logging.getLogger(__name__)

BATCH = 100


def delete_later(names: Iterable[str]) -> None:
    """Have these files deleted once the transaction commits; "" names none."""
    rows = [FileDeletion(name=name) for name in names if name]
    if not rows:
        return
    FileDeletion.objects.bulk_create(rows)
    if are_local():
        transaction.on_commit(lambda: _delete_all(rows), robust=True)


def note_upload(name: str) -> None:
    """Have this new file deleted later, unless a row names it by then. The upload goes
    on where the note cannot be written."""
    try:
        FileDeletion.objects.note_upload(name)
    except DatabaseError as exc:
        logger.warning("the upload %s is not noted: %s", name, type(exc).__name__)


def delete_uncommitted(names: Iterable[str]) -> None:
    """Delete files whose rows were not committed, after their transaction: it would
    take a note back with it. A commit that was lost on its way may have had effect, so
    a file that a row names stays."""
    for name in names:
        try:
            if are_local():
                _delete_file(name)
            else:
                delete_later([name])
        except OSError:
            _note(name)
        except DatabaseError as exc:
            _warn_of_rest(name, exc)


def delete_noted() -> Iterator[Counter[str]]:
    """Delete what is noted, until the storage rests. One step for each batch."""
    last, due = 0, FileDeletion.objects.due()
    while rows := list(due.filter(pk__gt=last).order_by("pk")[:BATCH]):
        last = rows[-1].pk
        try:
            deleted = _delete_all(rows)
        except FilesUnavailable:
            return  # the next run goes on
        yield Counter({"files": deleted})


def _delete_all(rows: Iterable[FileDeletion]) -> int:
    """The number of deleted files. One that cannot be deleted is left to the job, and
    stops no other. Raises FilesUnavailable while the storage rests."""
    deleted, reasons = 0, Counter[str]()
    try:
        for row in rows:
            try:
                _delete_file(row.name)
            except FilesUnavailable as exc:
                if exc.is_resting:
                    raise
                reasons[exc.reason] += 1
            except OSError as exc:
                reasons[type(exc).__name__] += 1
            else:
                FileDeletion.objects.filter(pk=row.pk).delete()
                deleted += 1
    finally:
        if reasons:
            logger.warning(
                "files that could not be deleted now: %d (%s)",
                reasons.total(),
                ", ".join(sorted(reasons)),
            )
    return deleted


def _delete_file(name: str) -> None:
    # A copy of a conversation names the same files.
    if not any(rows.filter(file=name).exists() for rows in _rows_with_files()):
        default_storage.delete(name)


def _rows_with_files() -> Iterator[QuerySet[Any]]:
    yield Attachment.objects.all()
    yield FolderFile.objects.all()
    yield ConversationImport.objects.all()


def _note(name: str) -> None:
    try:
        delete_later([name])
    except DatabaseError as exc:
        _warn_of_rest(name, exc)


def _warn_of_rest(name: str, exc: DatabaseError) -> None:
    logger.warning("the file %s is left over: %s", name, type(exc).__name__)
