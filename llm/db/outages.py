"""The errors of a database that may be unreachable."""

from __future__ import annotations

from django.db import InterfaceError, OperationalError

#: SQLite raises OperationalError for a missing table too; see `is_database_unavailable`
#: in `conversations/engine/database/executor.py`.
UNREACHABLE = (OperationalError, InterfaceError)
