"""Logging filters for Django's records: tracebacks and tokens that are left out."""

from __future__ import annotations

import logging

from llm.db.outages import UNREACHABLE
from project.server.access_log import hide_secrets

#: Arguments of URL patterns whose values are secrets.
_SECRETS = ("token", "key", "state")


class TracebackFilter(logging.Filter):
    """Reduce such a record of Django to one line.

    Django logs a traceback for an invalid host, form or file, which is the client's
    error, and for every request while the database is unreachable or the disk is full.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith("django."):
            return True
        status = getattr(record, "status_code", 500)
        exc = record.exc_info[1] if record.exc_info else None
        is_outage = isinstance(exc, UNREACHABLE)
        if (status == 503 and is_outage) or (status == 507 and exc is not None):
            assert exc is not None
            name = type(exc.__cause__ or exc).__name__
            record.msg, record.args = f"{record.getMessage()}: {name}", ()
            record.exc_info = record.exc_text = None
        elif status < 500:
            record.exc_info = record.exc_text = None
        return True


class AddressTokenFilter(logging.Filter):
    """Hide tokens that are part of an address, such as that of a shared conversation.

    Django logs the path of each request that it refuses, by several loggers and with
    the origin that it refuses besides, and adds the request to the record:
    https://docs.djangoproject.com/en/stable/ref/logging/#django-request
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if (request := getattr(record, "request", None)) is None:
            return True
        match = getattr(request, "resolver_match", None)
        arguments = match.kwargs if match else {}
        text = before = record.getMessage()
        for name in _SECRETS:
            if secret := arguments.get(name):
                text = text.replace(secret, "…")
        text = hide_secrets(text)
        if text != before:
            record.msg, record.args = text, ()
        return True
