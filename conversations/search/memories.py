"""Search in a user's memories."""

from __future__ import annotations

from conversations.models.memory import MAX_COUNT, Memory
from conversations.search.matching import rank


def find_memories(user_id: int, query: str, limit: int) -> list[Memory]:
    """The best matches; the newest memories where the query is empty."""
    rows = Memory.objects.of(user_id)[:MAX_COUNT]
    if not query.strip():
        return list(rows[:limit])
    return rank(query, rows, lambda row: row.text)[:limit]
