"""Deletion of stored files that no row names.

The names are written in the transaction that deletes the rows. Files on this machine
are deleted when it commits; those of a bucket, which may answer slowly or not at all,
by the periodic job `delete_files`. The name of a new file is noted before the file is
written, because its process may die before the row is committed.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from django.core.files.storage import default_storage
from django.db import DatabaseError, transaction
from django.db.models import Model

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
            if not are_local():
                delete_later([name])
            elif not _find_named([name]):
                default_storage.delete(name)
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
        yield +Counter(files=deleted)  # without a zero


def _delete_all(rows: Sequence[FileDeletion]) -> int:
    """The number of deleted files. One that cannot be deleted is left to the job, and
    stops no other. Raises FilesUnavailable while the storage rests."""
    deleted, done, reasons = 0, list[int](), Counter[str]()
    named = _find_named(row.name for row in rows)
    try:
        for row in rows:
            try:
                if row.name not in named:
                    default_storage.delete(row.name)
                    deleted += 1
            except FilesUnavailable as exc:
                if exc.is_resting:
                    raise
                reasons[exc.reason] += 1
            except OSError as exc:
                reasons[type(exc).__name__] += 1
            else:
                done.append(row.pk)
    finally:
        FileDeletion.objects.filter(pk__in=done).delete()
        if reasons:
            logger.warning(
                "files that could not be deleted now: %d (%s)",
                reasons.total(),
                ", ".join(sorted(reasons)),
            )
    return deleted


def _find_named(names: Iterable[str]) -> set[str]:
    """Those of the files that a row names, as a copy of a conversation does."""
    names = [*names]
    models: tuple[type[Model], ...] = (Attachment, FolderFile, ConversationImport)
    found = (
        model._default_manager.filter(file__in=names).values_list("file", flat=True)
        for model in models
    )
    return {name for rows in found for name in rows}


def _note(name: str) -> None:
    try:
        delete_later([name])
    except DatabaseError as exc:
        _warn_of_rest(name, exc)


def _warn_of_rest(name: str, exc: DatabaseError) -> None:
    logger.warning("the file %s is left over: %s", name, type(exc).__name__)
