"""Row of a backup: when one was last made, for staff's first steps."""

from __future__ import annotations

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Backup(models.Model):
    """Written by the command `backup`, also for backups that other programs made."""

    finished_at = models.DateTimeField(default=timezone.now, db_index=True)
    #: Empty for a backup of another program.
    folder = models.CharField(max_length=500, blank=True)

    class Meta:
        default_permissions = ()
        verbose_name = _("backup")

    def __str__(self) -> str:
        return self.folder or f"backup {self.pk}"
