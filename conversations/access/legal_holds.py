"""Rows under a legal hold cannot be deleted, by any user or job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin

from conversations.models.policy.legal_hold import (
    UnderLegalHold,
    check_conversation_not_held,
    check_user_not_held,
)


def refuse_of_user(*, instance: Any, **_: Any) -> None:
    """A receiver of `pre_delete` for rows with an owner. Raises UnderLegalHold."""
    if (owner := instance.owner_id) is not None:
        check_user_not_held(owner)


def refuse_file_of_folder(*, instance: Any, **_: Any) -> None:
    check_user_not_held(instance.folder.owner_id)


def refuse_conversation(*, instance: Any, **_: Any) -> None:
    check_conversation_not_held(instance.pk, instance.owner_id)


def refuse_of_conversation(*, instance: Any, **_: Any) -> None:
    """For rows of a conversation: turns and files."""
    conversation = instance.conversation
    check_conversation_not_held(conversation.pk, conversation.owner_id)


#: The receiver of each kind of row.
RECEIVERS: dict[str, Callable[..., None]] = {
    "conversations.Folder": refuse_of_user,
    "conversations.SavedPrompt": refuse_of_user,
    "conversations.FolderFile": refuse_file_of_folder,
    "conversations.Conversation": refuse_conversation,
    "conversations.Turn": refuse_of_conversation,
    "conversations.Attachment": refuse_of_conversation,
}


class LegalHoldMiddleware(MiddlewareMixin):
    """A page, of the chat or of the admin, that would delete such a row is 409."""

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponse | None:
        if not isinstance(exception, UnderLegalHold):
            return None
        page = render_to_string("under_legal_hold.html", request=request)
        return HttpResponse(page, status=exception.status)
