"""What is answered while nothing can be written: 503 where the database is away, 507
where the disk is full, and when to come back."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse, JsonResponse

from conversations.api import errors
from conversations.engine import storage
from conversations.engine.database import is_away

RETRY_AFTER = 2  # seconds
_AWAY = "The database cannot be reached; nothing was lost. Try again in a moment."


def server_error(request: HttpRequest) -> HttpResponse:
    """For a fault: ours, or that of a database which is restarted, or a full disk."""
    exc = sys.exc_info()[1]
    if storage.report_full(exc):
        return _answer(request, 507, storage.CODE, storage.MESSAGE, storage.RETRY_AFTER)
    if is_away(exc):
        return _answer(request, 503, "database_unavailable", _AWAY, RETRY_AFTER)
    return errors.server_error(request)


def _answer(
    request: HttpRequest, status: int, code: str, text: str, retry_after: int
) -> HttpResponse:
    response: HttpResponse
    wants_page = "text/html" in request.headers.get("Accept", "")
    if wants_page and not errors.is_api(request):
        response = HttpResponse(text, status=status, content_type="text/plain")
    else:
        error = {"message": text, "type": "server_error", "param": None, "code": code}
        response = JsonResponse({"error": error}, status=status)
    response["Retry-After"] = str(retry_after)
    return response
