from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm.credentials import one_word
from llm.encrypted import EncryptedTextField, Secret, SecretUnavailable
from llm.models.provider import Provider

KEY_USE_NOTED = timedelta(minutes=1)


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def usable(self, now: datetime | None = None) -> ApiKeyQuerySet:
        """Those that calls may be made with now."""
        State = ApiKey.State
        rested = Q(state=State.RESTING, rest_until__lte=now or timezone.now())
        return self.filter(Q(state=State.ACTIVE) | rested, weight__gt=0)

    def note_use(self, now: datetime, error: str) -> None:
        """One write a minute, and one where the error is another: all calls would wait
        for one another to write into the one row of their key."""
        before = Q(last_used_at=None) | Q(last_used_at__lt=now - KEY_USE_NOTED)
        news = self.filter(before | ~Q(last_error=error))
        news.update(last_used_at=now, last_error=error)


class ApiKey(models.Model):
    class State(models.TextChoices):
        ACTIVE = "active", _("active")
        RESTING = "resting", _("resting")
        DISABLED = "disabled", _("disabled")

    provider = models.ForeignKey(Provider, models.CASCADE, related_name="keys")
    label = models.CharField(max_length=100, default="default")
    hint = models.CharField(max_length=20, blank=True, editable=False)
    secret = EncryptedTextField(
        _("key"),
        hint_field="hint",
        validators=[
            RegexValidator(
                r"\A[\x21-\x7e]+\Z", _("A key has no spaces and no special letters.")
            )
        ],
        help_text=_("Stored encrypted and never shown; empty keeps what is stored."),
    )
    state = models.CharField(max_length=10, choices=State.choices, default=State.ACTIVE)
    weight = models.PositiveSmallIntegerField(
        default=1,
        help_text=_("Its share of the calls among a provider's keys; 0 takes none."),
    )
    rest_until = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_error = models.CharField(max_length=200, blank=True, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        ordering = ["provider", "label"]
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "label"], name="llm_key_label_once_per_provider"
            )
        ]
        verbose_name = _("API key")

    def __str__(self) -> str:
        return f"{self.label} {self.hint}".strip()

    def save(self, *args: Any, update_fields: Any = None, **kwargs: Any) -> None:
        if update_fields is not None and "secret" in update_fields:
            update_fields = {*update_fields, "hint"}
        super().save(*args, update_fields=update_fields, **kwargs)

    def clean_fields(self, exclude: Any = None) -> None:
        if isinstance(self.secret, Secret) and self.secret.hint:  # just entered
            self.secret = one_word(self.secret.reveal())
        super().clean_fields(exclude)

    def holds(self, text: str) -> bool:
        """Whether this is the stored key; one that cannot be decrypted is no key."""
        try:
            return bool(self.secret) and self.secret.reveal() == text
        except SecretUnavailable:
            return False
