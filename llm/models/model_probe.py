"""Row of a probe: which features of a model work at its host, as far as it has got."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from llm.models.language_model import LanguageModel

STALE = timedelta(seconds=180)  # without a finding: its process has ended


class ModelProbeQuerySet(models.QuerySet["ModelProbe"]):
    def running(self, now: datetime | None = None) -> ModelProbeQuerySet:
        """Those that a process works on; others without an end were interrupted."""
        since = (now or timezone.now()) - STALE
        return self.filter(finished_at=None, seen_at__gt=since)


class ModelProbe(models.Model):
    model = models.ForeignKey(LanguageModel, models.CASCADE, related_name="probes")
    started_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, related_name="+"
    )
    #: A finding for each feature tried so far, as `Finding.to_dict`.
    findings = models.JSONField(default=list)
    #: The model's `probe_target`; "" if it is not known.
    target = models.TextField(blank=True, default="", db_default="")
    error = models.CharField(max_length=300, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    seen_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)

    objects = ModelProbeQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        verbose_name = _("probe of a model")
        verbose_name_plural = _("probes of models")

    def __str__(self) -> str:
        return f"probe {self.pk} of {self.model}"

    @property
    def is_outdated(self) -> bool:
        """Whether the provider or the model's name has changed since."""
        return self.target not in {"", self.model.probe_target}

    @property
    def is_running(self) -> bool:
        return self.finished_at is None and self.seen_at > timezone.now() - STALE

    @property
    def is_interrupted(self) -> bool:
        return self.finished_at is None and not self.is_running
