"""Rows about the running processes, and about maintenance, for staff's live board."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _


class ProcessStatus(models.Model):
    """A process with an engine, as it last reported."""

    id = models.CharField(primary_key=True, max_length=100)
    runs_turns = models.BooleanField()  # False of a web process beside workers
    started_at = models.DateTimeField()
    heard_at = models.DateTimeField(db_index=True)
    figures = models.JSONField(default=dict)  # of `ProcessFigures`
    #: Staff asked it to start no more turns.
    drains = models.BooleanField(default=False, db_default=False)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.id


class Maintenance(models.Model):
    """Maintenance mode and the banner above the chat. At most one row."""

    banner = models.CharField(
        max_length=300,
        blank=True,
        help_text=_("Shown on all chat pages; leave empty for none."),
    )
    refuses_messages = models.BooleanField(
        _("refuse new messages"),
        default=False,
        help_text=_("From people and programs; what runs continues."),
    )
    admin_is_read_only = models.BooleanField(
        _("read-only admin"),
        default=False,
        db_default=False,
        help_text=_("Staff can look, and change nothing but this page."),
    )
    changed_at = models.DateTimeField(auto_now=True)
    changed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )

    class Meta:
        default_permissions = ["change"]
        verbose_name = _("maintenance")

    def __str__(self) -> str:
        return self.banner
