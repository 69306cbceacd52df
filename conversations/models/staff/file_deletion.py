"""Row of a stored file that no row names any more, until the file is deleted."""

from __future__ import annotations

from django.db import models


class FileDeletion(models.Model):
    """Committed with the deletion of the row that named the file. So a file is deleted
    in the end, whatever becomes of the process or of the storage meanwhile."""

    name = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.name
