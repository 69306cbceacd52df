"""Search by any id: of a turn, a conversation, an item, a tool call or a provider's
request, whichever a user's error message or a provider's support names."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from conversations.models import Conversation, Item, ToolCall, Turn
from llm.models import ModelCall

MAX_FOUND = 1_000  # turns of one search


def find_turns(term: str) -> set[str]:
    """Ids of the turns that have this id, or that contain what has it.

    Each table is asked by itself, by its index; joined with OR, none would be used.
    """
    calls = ModelCall.objects.order_by().exclude(turn_id="")
    found = {
        *_turn_of(ToolCall.objects.order_by().filter(call_id=term)),
        *_turn_of(Item.objects.with_ids([term]).order_by()),
        *_turn_of(calls.filter(request_id=term)),
        *_turn_of(calls.filter(response_id=term)),
        *_turn_of(calls.filter(our_request_id=term)),
        *_turn_of(calls.filter(client_request_id=term)),
    }
    own = Turn.objects.order_by().filter(conversation=term)
    found |= set(own.values_list("pk", flat=True)[:MAX_FOUND])
    return found | {term}


def find_conversations(term: str) -> set[str]:
    """Ids of the conversations that have this id, or that contain what has it."""
    turns = Turn.objects.order_by().filter(pk__in=find_turns(term))
    return {term, *turns.values_list("conversation_id", flat=True).distinct()}


def find_turns_of(username: str) -> set[str]:
    """Ids of turns in the newest conversations of the user with this name."""
    rows = Conversation.objects.filter(owner__username=username)
    newest = rows.order_by("-updated_at").values_list("pk", flat=True)[:MAX_FOUND]
    turns = Turn.objects.order_by().filter(conversation__in=list(newest))
    return set(turns.values_list("pk", flat=True)[:MAX_FOUND])


def _turn_of(rows: QuerySet[Any]) -> set[str]:
    return set(rows.values_list("turn_id", flat=True)[:MAX_FOUND])
