"""The database's clock. Leases are compared with it, because the clocks of several
machines differ, and one that is ahead would take what others still work on."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone


def database_now(offset: float = 0.0) -> Any:
    """The time `offset` seconds from now, as a value of Django's queries. With SQLite
    there is one process, whose clock is used."""
    time_off = timedelta(seconds=offset)
    if connection.vendor == "postgresql":
        return Now() + time_off
    return timezone.now() + time_off
