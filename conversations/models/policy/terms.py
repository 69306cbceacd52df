"""Versions of the terms of use, and who has accepted which."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from conversations.audit.record import record_event


class TermsVersionQuerySet(models.QuerySet["TermsVersion"]):
    def newest(self) -> TermsVersion | None:
        """The version that people must accept, if one is published."""
        return self.exclude(number=None).order_by("-number").first()


class TermsVersion(models.Model):
    """A draft until it is published; from then on its text stays."""

    number = models.PositiveIntegerField(
        _("version"), null=True, unique=True, editable=False
    )
    text = models.TextField(
        _("text"), max_length=50_000, help_text=_("Markdown, without pictures.")
    )
    applies_to_tokens = models.BooleanField(
        _("access tokens too"),
        default=False,
        help_text=_(
            "Access tokens of people who have not accepted are refused as well, over"
            " REST and /v1."
        ),
    )
    created_at = models.DateTimeField(auto_now_add=True)
    published_at = models.DateTimeField(_("published at"), null=True, editable=False)

    objects = TermsVersionQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]
        verbose_name = _("version of the terms")
        verbose_name_plural = _("versions of the terms")
        permissions = [("publish_termsversion", "Can publish the terms")]

    def __str__(self) -> str:
        if self.number is None:
            return f"draft {self.pk}"
        return f"version {self.number}"

    def publish(self) -> None:
        """In a transaction. The unique number lets only one of two win."""
        last = TermsVersion.objects.aggregate(last=Max("number"))["last"] or 0
        self.number, self.published_at = last + 1, timezone.now()
        self.save(update_fields=["number", "published_at"])

    def accept(self, user: Any) -> None:
        """In a transaction; an event of the audit log, once."""
        _row, is_new = self.acceptances.get_or_create(user=user)
        if is_new:
            details = {"version": self.number}
            record_event("terms.accept", target=self, subject=user, details=details)


class TermsAcceptance(models.Model):
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="accepted_terms"
    )
    terms = models.ForeignKey(TermsVersion, models.PROTECT, related_name="acceptances")
    accepted_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["user", "terms"], name="conversations_accepted_once"
            )
        ]

    def __str__(self) -> str:
        return f"acceptance {self.pk}"
