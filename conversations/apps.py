from __future__ import annotations

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_delete


class ConversationsConfig(AppConfig):
    name = "conversations"
    verbose_name = "Conversations"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from conversations.checks import check_context_sources
        from conversations.turns.attachments import delete_file

        checks.register(check_context_sources)
        post_delete.connect(delete_file, sender="conversations.Attachment")
