"""Deletion of stored files after the rows that named them.

The names are written in the transaction that deletes those rows. Files on this machine
are deleted when it commits; those of a bucket, which may answer slowly or not at all,
by the periodic job `delete_files`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from django.core.files.storage import FileSystemStorage, default_storage
from django.db import transaction

from conversations.models import Attachment, FileDeletion
from conversations.turns.file_storage import FilesUnavailable

BATCH = 100


def delete_later(names: Iterable[str]) -> None:
    """Have these files deleted once the transaction commits; "" names none."""
    rows = [FileDeletion(name=name) for name in names if name]
    if not rows:
        return
    FileDeletion.objects.bulk_create(rows)
    if isinstance(default_storage, FileSystemStorage):
        transaction.on_commit(lambda: _delete(rows))


def delete_noted() -> Iterator[Counter[str]]:
    """Delete what is noted, until the storage fails. One step for each batch."""
    last = 0
    while rows := list(FileDeletion.objects.filter(pk__gt=last).order_by("pk")[:BATCH]):
        last = rows[-1].pk
        try:
            _delete(rows)
        except FilesUnavailable:
            return  # the next run goes on
        yield Counter({"files": len(rows)})


def _delete(rows: Iterable[FileDeletion]) -> None:
    for row in rows:
        # A copy of a conversation names the same files.
        if not Attachment.objects.filter(file=row.name).exists():
            default_storage.delete(row.name)
        FileDeletion.objects.filter(pk=row.pk).delete()
