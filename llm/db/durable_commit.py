"""Durable commits on SQLite, which survive a loss of power.

SQLite runs with `synchronous=NORMAL`: a commit reaches the disk with the next
checkpoint, and a crash of the process loses nothing. An accepted message, and the
record of a tool that must not run twice, have to survive a loss of power too. For these
the write-ahead log is synchronized right after the commit; `synchronous=FULL` does the
same, but cannot be set for a single transaction. PostgreSQL's commits are durable by
themselves.
"""

from __future__ import annotations

import os
from contextlib import suppress

from django.db import connection, transaction


def sync_on_commit() -> None:
    """Write this transaction to the disk before its commit returns."""
    if connection.vendor == "sqlite":
        transaction.on_commit(_sync)


def _sync() -> None:
    path = f"{connection.settings_dict['NAME']}-wal"
    with suppress(
        FileNotFoundError
    ):  # an in-memory database, or checkpointed and closed
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
