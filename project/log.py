"""What the log tells of a request that was refused."""

from __future__ import annotations

import logging


class Refusals(logging.Filter):
    """A line for each. Django adds a traceback where a host, a form or a file makes no
    sense, as if that were a fault of ours."""

    def filter(self, record: logging.LogRecord) -> bool:
        is_refused = getattr(record, "status_code", 500) < 500
        if record.name.startswith("django.") and is_refused:
            record.exc_info = record.exc_text = None
        return True
