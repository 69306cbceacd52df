"""Row of an import: a file of conversations from another program, and its progress."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

MAX_REASONS = 200  # skipped conversations that the report names


class ConversationImportQuerySet(models.QuerySet["ConversationImport"]):
    def of(self, user: Any) -> ConversationImportQuerySet:
        """Imports that `user` may see everywhere except in the admin."""
        return self.filter(owner_id=user.pk)

    def unfinished(self) -> ConversationImportQuerySet:
        return self.filter(state__in=ConversationImport.UNFINISHED)


class ConversationImport(models.Model):
    """An uploaded file of conversations, and what has been read of it."""

    class State(models.TextChoices):
        QUEUED = "queued", _("queued")
        RUNNING = "running", _("running")
        COMPLETED = "completed", _("completed")
        FAILED = "failed", _("failed")

    UNFINISHED = [State.QUEUED, State.RUNNING]

    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="conversation_imports"
    )
    name = models.CharField(max_length=255, help_text=_("Name of the uploaded file."))
    file = models.FileField(upload_to="imports/%Y/%m/", blank=True)
    size = models.PositiveBigIntegerField(help_text=_("Bytes of the uploaded file."))
    format = models.CharField(max_length=20, blank=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.QUEUED)
    language = models.CharField(
        max_length=10,
        blank=True,
        default="",
        db_default="",
        help_text=_("Of the report."),
    )
    position = models.PositiveIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text=_("Steps that are done; an interrupted import goes on behind them."),
    )
    epoch = models.PositiveIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text=_("Number of its readings; only the latest one writes."),
    )
    fruitless = models.PositiveIntegerField(
        default=0,
        db_default=0,
        editable=False,
        help_text=_("Readings since the last one that finished a step."),
    )
    imported = models.PositiveIntegerField(default=0)
    repeated = models.PositiveIntegerField(
        default=0, help_text=_("Conversations that an earlier import has brought.")
    )
    skipped = models.PositiveIntegerField(default=0)
    reasons = models.JSONField(
        default=list,
        blank=True,
        help_text=_("Skipped conversations and parts, each with the reason."),
    )
    error = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    seen_at = models.DateTimeField(
        null=True, blank=True, help_text=_("Time at which it last made progress.")
    )
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = ConversationImportQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        verbose_name = _("import")
        verbose_name_plural = _("imports")

    def __str__(self) -> str:
        return self.name

    @property
    def is_finished(self) -> bool:
        return self.state not in self.UNFINISHED
