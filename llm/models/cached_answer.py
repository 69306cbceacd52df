"""`CachedAnswer`: the answer of a model, stored for equal requests of its owner."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from llm.models.language_model import LanguageModel


class CachedAnswer(models.Model):
    #: SHA-256 of owner, model and request (`llm.cache.request_digest`).
    digest = models.CharField(max_length=64, primary_key=True)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, related_name="+"
    )
    model = models.ForeignKey(
        LanguageModel, models.CASCADE, null=True, related_name="+"
    )
    answer = models.TextField()  # JSON: deltas, degraded
    cost = models.DecimalField(max_digits=18, decimal_places=12, null=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.digest
