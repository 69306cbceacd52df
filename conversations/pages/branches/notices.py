"""The notice with an Undo button after something was deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from conversations.models import Conversation
from conversations.requests.branches import (
    find_deleted_branch,
    find_deleted_conversation,
)

_ID_LENGTH = 64  # characters


@dataclass(frozen=True, slots=True)
class Deleted:
    """What was deleted: the conversation with this title, or a branch."""

    restore_url: str
    title: str = ""
    is_branch: bool = False


def deletion_notice(
    request: HttpRequest, conversation: Conversation | None
) -> dict[str, Any]:
    """Template context: what `?deleted=` or `?deleted_branch=` names, if the user may
    restore it."""
    if not request.GET.keys() & {"deleted", "deleted_branch"}:
        return {}
    if conversation is None:
        found = find_deleted_conversation(request.user, _id(request, "deleted"))
        if found is None:
            return {}
        url = reverse("restore-conversation", args=[found.pk])
        return {"deleted": Deleted(url, found.title)}
    turn = find_deleted_branch(request.user, _id(request, "deleted_branch"))
    if turn is None or turn.conversation_id != conversation.pk:
        return {}
    url = reverse("restore-branch", args=[conversation.pk, turn.pk])
    return {"deleted": Deleted(url, is_branch=True)}


def _id(request: HttpRequest, name: str) -> str:
    return request.GET.get(name, "").replace("\0", "")[:_ID_LENGTH]
