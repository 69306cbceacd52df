"""Addresses whose owners may make an account through an identity provider."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

EXPIRED_FOR = timedelta(days=30)  # before it is erased


def in_two_weeks() -> datetime:
    return timezone.now() + timedelta(days=14)


class Invitation(models.Model):
    email = models.EmailField(_("e-mail address"), unique=True)
    expires_at = models.DateTimeField(_("expires at"), default=in_two_weeks)
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        models.SET_NULL,
        null=True,
        editable=False,
        related_name="+",
        verbose_name=_("invited by"),
    )
    created_at = models.DateTimeField(auto_now_add=True)
    accepted_at = models.DateTimeField(_("accepted at"), null=True, editable=False)

    class Meta:
        ordering = ["-created_at", "-pk"]
        verbose_name = _("invitation")
        verbose_name_plural = _("invitations")

    def __str__(self) -> str:
        return self.email

    def save(self, *args: Any, **kwargs: Any) -> None:
        self.email = self.email.lower()
        super().save(*args, **kwargs)

    @classmethod
    def find_expired(cls) -> tuple[str, models.QuerySet[Invitation]]:
        """Those that retention erases, accepted or not."""
        before = timezone.now() - EXPIRED_FOR
        return "invitations", cls.objects.filter(expires_at__lt=before)

    @classmethod
    def find_open(cls, email: str) -> Invitation | None:
        """That of a verified address, if it may be accepted now."""
        rows = cls.objects.filter(expires_at__gt=timezone.now(), accepted_at=None)
        return rows.filter(email=email.lower()).first() if email else None

    def accept(self) -> None:
        self.accepted_at = timezone.now()
        self.save(update_fields=["accepted_at"])
