"""Which stored turns and conversations a gateway token may name."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, QuerySet

from conversations.models import AccessToken, Conversation, Turn
from conversations.tokens import Scope

MADE_HERE = {"options__has_key": "gateway"}


def visible_turns(token: AccessToken) -> QuerySet[Turn]:
    """Turns that gateway tokens of the token's user made.

    Without the scope `chat`, none of a conversation in which a chat took place: to go
    on from such a turn is to read the chat.
    """
    turns = Turn.objects.filter(
        conversation__owner_id=token.user_id,
        conversation__deleted_at=None,
        **MADE_HERE,
    )
    return turns if token.has_scope(Scope.CHAT) else turns.filter(~_in_chat())


def nameable_conversations(token: AccessToken) -> QuerySet[Conversation]:
    """Conversations that a request may name."""
    rows = Conversation.objects.filter(owner_id=token.user_id, deleted_at=None)
    return rows if token.has_scope(Scope.CHAT) else without_chats(rows)


def without_chats(rows: QuerySet[Conversation]) -> QuerySet[Conversation]:
    """Those of which every turn came in by the gateway, and at least one did."""
    turns = Turn.objects.filter(conversation=OuterRef("pk"))
    ours, others = turns.filter(**MADE_HERE), turns.exclude(**MADE_HERE)
    return rows.filter(Exists(ours), ~Exists(others))


def _in_chat() -> Exists:
    beside = Turn.objects.filter(conversation=OuterRef("conversation_id"))
    return Exists(beside.exclude(**MADE_HERE))
