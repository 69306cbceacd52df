"""Commits that survive a loss of power, on SQLite.

SQLite runs with `synchronous=NORMAL`: a commit reaches the disk with the next
checkpoint, and a crash of the process loses nothing. A message that was accepted and
the marks of a tool that must not run twice have to survive a loss of power too: for
these the write-ahead log is synchronized right after the commit, which is all that
`synchronous=FULL` adds, and which SQLite does not let a transaction ask for.
PostgreSQL's commits are durable by themselves.
"""

from __future__ import annotations

import os
from contextlib import suppress

from django.db import connection, transaction


def sync_on_commit() -> None:
    """Have this transaction on the disk before its commit returns."""
    if connection.vendor == "sqlite":
        transaction.on_commit(_sync)


def _sync() -> None:
    path = f"{connection.settings_dict['NAME']}-wal"
    with suppress(
        FileNotFoundError
    ):  # a database in memory, or checkpointed and closed
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
