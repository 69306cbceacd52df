"""What staff announce on every chat page, and who has dismissed it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Announcement(models.Model):
    class Level(models.TextChoices):
        INFO = "info", _("information")
        WARNING = "warning", _("warning")
        CRITICAL = "critical", _("critical")

    text = models.TextField(
        _("text"),
        max_length=2000,
        help_text=_("Markdown: **bold**, lists, [links](https://example.org)."),
    )
    level = models.CharField(
        _("level"), max_length=10, choices=Level.choices, default=Level.INFO
    )
    starts_at = models.DateTimeField(_("shown from"), default=timezone.now)
    ends_at = models.DateTimeField(
        _("shown until"), null=True, blank=True, help_text=_("Empty: until deleted.")
    )
    groups = models.ManyToManyField(
        Group,
        blank=True,
        related_name="announcements",
        verbose_name=_("groups"),
        help_text=_("Only members of these see it; none selected: everybody."),
    )
    dismissible = models.BooleanField(
        _("people may dismiss it"),
        default=True,
        help_text=_("A dismissed announcement comes back when its text changes."),
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-starts_at", "-pk"]
        verbose_name = _("announcement")
        verbose_name_plural = _("announcements")
        constraints = [
            models.CheckConstraint(
                condition=Q(ends_at=None) | Q(ends_at__gt=F("starts_at")),
                name="conversations_announcement_ends_later",
                violation_error_message=_("It would end before it starts."),
            ),
        ]

    def __str__(self) -> str:
        return self.text[:60]

    def dismiss(self, user: Any) -> None:
        self.dismissals.get_or_create(user=user)


class AnnouncementDismissal(models.Model):
    announcement = models.ForeignKey(
        Announcement, models.CASCADE, related_name="dismissals"
    )
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    dismissed_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["announcement", "user"], name="conversations_dismissed_once"
            )
        ]

    def __str__(self) -> str:
        return f"dismissal {self.pk}"
