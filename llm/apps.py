"""App configuration: registers the checks of the app."""

from __future__ import annotations

from django.apps import AppConfig
from django.core import checks


class LLMConfig(AppConfig):
    name = "llm"
    verbose_name = "Language models"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from llm.checks import check_ring, check_secrets

        checks.register(check_ring, checks.Tags.security)
        checks.register(check_secrets, checks.Tags.database)
