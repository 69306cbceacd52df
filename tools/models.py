from __future__ import annotations

from django.contrib.auth.models import Group
from django.db import models
from django.utils.translation import gettext_lazy as _


class Tool(models.Model):
    class Kind(models.TextChoices):
        PYTHON = "python", _("Python function")

    class Replay(models.TextChoices):
        SAFE = "safe", _("safe to run again")
        IDEMPOTENT = "idempotent", _("safe to run again with the same key")
        ONCE = "once", _("never run twice")

    name = models.SlugField(max_length=64, unique=True)
    kind = models.CharField(max_length=10, choices=Kind.choices, default=Kind.PYTHON)
    label = models.CharField(max_length=100, blank=True)
    description = models.TextField(
        blank=True,
        help_text=_("What the model is told; empty for the code's words."),
    )
    enabled = models.BooleanField(default=True)
    timeout = models.FloatField(
        null=True, blank=True, help_text=_("Seconds; empty for the code's own limit.")
    )
    replay = models.CharField(
        max_length=10,
        choices=Replay.choices,
        blank=True,
        help_text=_("What a crash may repeat; empty for the code's own word."),
    )
    groups = models.ManyToManyField(
        Group, blank=True, help_text=_("Who may use it; nobody named means everybody.")
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.label or self.name
