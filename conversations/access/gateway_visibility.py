"""The stored turns and conversations that a gateway request may refer to."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, QuerySet

from conversations.models import AccessToken, Conversation, Turn
from conversations.models.access_token import Scope

FROM_GATEWAY = {"options__has_key": "gateway"}


def visible_turns(token: AccessToken) -> QuerySet[Turn]:
    """Turns that were created through the gateway by the token's user.

    Without the scope `chat`, turns of conversations that also have turns from elsewhere
    are excluded: continuing from such a turn would reveal the chat.
    """
    turns = Turn.objects.filter(
        conversation__owner_id=token.user_id,
        conversation__deleted_at=None,
        **FROM_GATEWAY,
    )
    return turns if token.has_scope(Scope.CHAT) else turns.filter(~_in_chat())


def visible_conversations(token: AccessToken) -> QuerySet[Conversation]:
    """Conversations that a gateway request with this token may refer to."""
    rows = Conversation.objects.filter(owner_id=token.user_id, deleted_at=None)
    return rows if token.has_scope(Scope.CHAT) else without_chats(rows)


def without_chats(rows: QuerySet[Conversation]) -> QuerySet[Conversation]:
    """Conversations that have turns, all of them from the gateway."""
    turns = Turn.objects.filter(conversation=OuterRef("pk"))
    gateway_turns, others = turns.filter(**FROM_GATEWAY), turns.exclude(**FROM_GATEWAY)
    return rows.filter(Exists(gateway_turns), ~Exists(others))


def _in_chat() -> Exists:
    beside = Turn.objects.filter(conversation=OuterRef("conversation_id"))
    return Exists(beside.exclude(**FROM_GATEWAY))
