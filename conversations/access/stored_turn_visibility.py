"""The stored turns and conversations that a gateway request may refer to."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, QuerySet

from conversations.models import AccessToken, Conversation, Turn
from conversations.models.access_token import Scope

FROM_GATEWAY = {"options__has_key": "gateway"}


def find_visible_turns(token: AccessToken, turns: QuerySet[Turn]) -> list[Turn]:
    """Those of `turns` that were created through the gateway by the token's user.

    Without the scope `chat`, a turn that follows one from elsewhere is excluded:
    continuing from such a turn would reveal the chat.
    """
    found = turns.filter(
        conversation__owner_id=token.user_id,
        conversation__deleted_at=None,
        deleted_at=None,
        **FROM_GATEWAY,
    )
    if token.conversation_limit is not None:
        rows = Conversation.objects.filter(owner_id=token.user_id)
        within = token.conversation_limit.narrow(rows).values("pk")
        found = found.filter(conversation__in=within)
    if token.has_scope(Scope.CHAT):
        return list(found)
    beside_chats = set(found.filter(_in_chat()).values_list("pk", flat=True))
    return [t for t in found if t.pk not in beside_chats or not _follows_chat(t)]


def visible_conversations(token: AccessToken) -> QuerySet[Conversation]:
    """Conversations that a gateway request with this token may refer to."""
    rows = Conversation.objects.filter(owner_id=token.user_id, deleted_at=None)
    if token.conversation_limit is not None:
        rows = token.conversation_limit.narrow(rows)
    return rows if token.has_scope(Scope.CHAT) else without_chats(rows)


def without_chats(rows: QuerySet[Conversation]) -> QuerySet[Conversation]:
    """Conversations that have turns, all of them from the gateway."""
    turns = Turn.objects.filter(conversation=OuterRef("pk"))
    gateway_turns, others = turns.filter(**FROM_GATEWAY), turns.exclude(**FROM_GATEWAY)
    return rows.filter(Exists(gateway_turns), ~Exists(others))


def _in_chat() -> Exists:
    beside = Turn.objects.filter(conversation=OuterRef("conversation_id"))
    return Exists(beside.exclude(**FROM_GATEWAY))


def _follows_chat(turn: Turn) -> bool:
    lineage = Turn.objects.filter(pk__in=Turn.objects.lineage_of(turn))
    return lineage.exclude(**FROM_GATEWAY).exists()
