"""Table of Django's cache, which all processes share and a restart does not empty."""

from __future__ import annotations

from django.db import models


class CacheEntry(models.Model):
    """A value of `django.core.cache`: django-allauth counts attempts at second factors
    there, and marks codes that were used. `CACHES` names its table."""

    cache_key = models.CharField(max_length=255, primary_key=True)
    value = models.TextField()
    expires = models.DateTimeField(db_index=True)

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.cache_key
