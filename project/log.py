"""What the log tells of a request that was refused, or that found no database."""

from __future__ import annotations

import logging

from django.db import InterfaceError, OperationalError


class Refusals(logging.Filter):
    """A line for each. Django adds a traceback where a host, a form or a file makes no
    sense, as if that were a fault of ours; and where the database is away or the disk
    full, which every request of that time finds."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith("django."):
            return True
        status = getattr(record, "status_code", 500)
        exc = record.exc_info[1] if record.exc_info else None
        away = isinstance(exc, OperationalError | InterfaceError)
        if (status == 503 and away) or (status == 507 and exc is not None):
            assert exc is not None
            name = type(exc.__cause__ or exc).__name__
            record.msg, record.args = f"{record.getMessage()}: {name}", ()
            record.exc_info = record.exc_text = None
        elif status < 500:
            record.exc_info = record.exc_text = None
        return True
