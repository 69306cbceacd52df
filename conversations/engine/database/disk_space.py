"""Detection of full disks, and readiness after one.

SQLite, PostgreSQL or an upload may meet a full disk. The code that meets one calls
`report_full`; until a test write succeeds, readiness then reports that there is no
room.
"""

from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, OperationalError, transaction

CODE = "storage_full"
MESSAGE = "The server's storage is full; nothing was saved. Try again later."
RETRY_AFTER = 30  # seconds; a person has to make room
ROOM = 8 * 1024 * 1024  # bytes; with less free space no process takes work
_PROBE = 256 * 1024  # bytes
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_POSTGRESQL_FULL = "53100"  # disk_full

_reported = False


def is_full(exc: BaseException | None) -> bool:
    """Whether a write failed because the disk is full."""
    if isinstance(exc, OperationalError):
        cause = exc.__cause__
        if isinstance(cause, sqlite3.Error):
            return getattr(cause, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
        return getattr(cause, "sqlstate", None) == _POSTGRESQL_FULL
    return isinstance(exc, OSError) and exc.errno in _FULL


def report_full(exc: BaseException | None) -> bool:
    """Like `is_full`; a full disk also makes the process not ready."""
    global _reported
    if is_full(exc):
        _reported = True
        return True
    return False


def has_room() -> bool:
    """Whether this process can write. Synchronous; makes a test write only after a full
    disk was reported, and clears the report if that succeeds."""
    global _reported
    if _free(settings.DATA) < ROOM:
        return False
    if _reported:
        _reported = not _can_write()
    return not _reported


def _free(path: Path) -> int:
    try:
        return shutil.disk_usage(path).free
    except OSError:
        return ROOM  # a write will fail if there is none


def _can_write() -> bool:
    """SQLite and PostgreSQL check for room when they add a page, not at the commit."""
    from django.contrib.sessions.models import Session
    from django.utils import timezone

    try:
        with transaction.atomic():
            Session(
                session_key="parley-probe",
                session_data="x" * _PROBE,
                expire_date=timezone.now(),
            ).save(force_insert=True)
            transaction.set_rollback(True)
    except DatabaseError:
        return False
    return True
