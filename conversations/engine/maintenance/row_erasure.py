"""Erase conversations, turns and files, a part per transaction of the caller."""

from __future__ import annotations

from collections import Counter

from django.db.models import QuerySet

from conversations.engine.shared_log.erased_events import erase_events
from conversations.models import Attachment, Conversation, Turn
from llm.models import ModelCall

FILES = 500  # per transaction
TURNS, CONVERSATIONS = 25, 25  # per transaction; their dependent rows go with them


def erase_conversations(rows: QuerySet[Conversation]) -> Counter[str]:
    """Erase a part of what belongs to the first of the conversations, or these. One
    that another transaction changes now, a restored one say, is left."""
    free = rows.select_for_update(of=("self",), skip_locked=True)
    deleted = [row.pk for row in free.only("pk")[:CONVERSATIONS]]
    if files := list(Attachment.objects.filter(conversation__in=deleted)[:FILES]):
        return Counter({"files": erase_files(files)})
    turns = Turn.objects.filter(conversation__in=deleted).order_by()
    if pks := list(turns.values_list("pk", flat=True)[:TURNS]):
        return Counter({"turns": erase_turns(pks)})
    Conversation.objects.filter(pk__in=deleted).delete()
    return Counter({"conversations": len(deleted)} if deleted else {})


def erase_files(rows: list[Attachment]) -> int:
    # A receiver has the files deleted.
    Attachment.objects.filter(pk__in=[row.pk for row in rows]).delete()
    return len(rows)


def erase_turns(pks: list[str]) -> int:
    # The figures stay for accounting; an error detail may quote the conversation.
    ModelCall.objects.erase_contents(pks)
    Turn.objects.filter(pk__in=pks).delete()
    erase_events(pks)
    return len(pks)
