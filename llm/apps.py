from __future__ import annotations

from django.apps import AppConfig


class LLMConfig(AppConfig):
    name = "llm"
    verbose_name = "Language models"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from llm import checks  # noqa: F401  (registers them)
