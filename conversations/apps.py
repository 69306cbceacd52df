"""App configuration: queues turns, and checks and signals of the app."""

from __future__ import annotations

from django.apps import AppConfig
from django.conf import settings
from django.contrib.auth.signals import user_logged_out
from django.core import checks
from django.db.models.signals import post_delete, post_save, pre_delete

from llm.db.statements import Statement


class ConversationsConfig(AppConfig):
    name = "conversations"
    verbose_name = "Conversations"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from conversations import turn_queue
        from conversations.access import account_deletion, legal_holds
        from conversations.access.audited_rows import watch_rows
        from conversations.access.sessions import end_temporary_chats, forget_session
        from conversations.checks import check_context_sources
        from conversations.models import access_token, tool_call
        from conversations.models.webhooks import endpoint
        from conversations.turns.attachments import delete_file, delete_folder_file

        checks.register(check_context_sources)
        watch_rows()
        post_delete.connect(delete_file, sender="conversations.Attachment")
        post_delete.connect(delete_folder_file, sender="conversations.FolderFile")
        user_logged_out.connect(forget_session)
        for model, receiver in legal_holds.RECEIVERS.items():
            pre_delete.connect(receiver, sender=model)
        pre_delete.connect(access_token.note_limited_tokens, sender="llm.LanguageModel")
        post_delete.connect(
            access_token.revoke_unlimited_tokens, sender="llm.LanguageModel"
        )
        pre_delete.connect(
            tool_call.stop_turns_of_token, sender="conversations.AccessToken"
        )
        post_save.connect(
            tool_call.stop_turns_of_revoked_token, sender="conversations.AccessToken"
        )
        post_save.connect(account_deletion.stop_work, sender=settings.AUTH_USER_MODEL)
        pre_delete.connect(endpoint.remove_user, sender=settings.AUTH_USER_MODEL)
        pre_delete.connect(endpoint.remove_group, sender="auth.Group")
        pre_delete.connect(end_temporary_chats, sender="conversations.SignedInSession")
        if settings.IS_SCALED:
            turn_queue.fill(_notify_workers, _notice_call)
        else:
            turn_queue.fill(None)


def _notify_workers(turn_id: str) -> None:
    from conversations.engine.database import turn_notices  # needs all apps to be ready

    turn_notices.enqueue(turn_id)


def _notice_call(turn_id: str, conversation_id: str, is_first: bool) -> Statement:
    from conversations.engine.database import turn_notices

    return turn_notices.notice_call(turn_id, conversation_id, is_first)
