"""Row of a stored file that is to be deleted, until it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Self

from django.db import models
from django.db.models.functions import Now
from django.utils import timezone

#: After the file of a new row is written, its row is committed. A file whose process
#: dies between the two has no row, so nothing else would ever delete it.
UPLOAD_GRACE = timedelta(hours=6)


class FileDeletionQuerySet(models.QuerySet["FileDeletion"]):
    def due(self) -> Self:
        return self.filter(due_at__lte=timezone.now())

    def note_upload(self, name: str) -> None:
        """Before a file is written: it is deleted after `UPLOAD_GRACE` unless a row
        names it by then."""
        self.create(name=name, due_at=timezone.now() + UPLOAD_GRACE)


class FileDeletion(models.Model):
    """Committed with the deletion of the row that named the file, or before the file
    of a new row is written. So a file without a row is deleted in the end, whatever
    becomes of the process or of the storage meanwhile."""

    name = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)
    due_at = models.DateTimeField(default=timezone.now, db_default=Now(), db_index=True)

    objects = FileDeletionQuerySet.as_manager()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.name
