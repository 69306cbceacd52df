"""Erase the events of erased turns, which would expire within a day by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from django.conf import settings
from django.db import connection, transaction

from conversations.engine.postgresql import tables


def erase_events(turn_ids: Sequence[str]) -> None:
    """Call it in the transaction that erases the turns, on a thread that may use the
    database. Redis forgets them after the commit, if it can be reached."""
    if connection.vendor == "postgresql":
        tables.delete_events(turn_ids)
    if settings.IS_SCALED and settings.REDIS_URL:
        from conversations.engine.redis.erased_streams import erase_streams

        erase = partial(erase_streams, settings.REDIS_URL, tuple(turn_ids))
        transaction.on_commit(erase, robust=True)
