"""What is answered while the database is away: 503, and when to come back."""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse, JsonResponse

from conversations.api import errors
from conversations.engine.database import is_away

RETRY_AFTER = 2  # seconds
_TEXT = "The database cannot be reached; nothing was lost. Try again in a moment."
_ERROR = {
    "message": _TEXT,
    "type": "server_error",
    "param": None,
    "code": "database_unavailable",
}


def server_error(request: HttpRequest) -> HttpResponse:
    """For a fault: ours, or that of a database which is restarted."""
    if not is_away(sys.exc_info()[1]):
        return errors.server_error(request)
    response: HttpResponse
    wants_page = "text/html" in request.headers.get("Accept", "")
    if wants_page and not errors.is_api(request):
        response = HttpResponse(_TEXT, status=503, content_type="text/plain")
    else:
        response = JsonResponse({"error": _ERROR}, status=503)
    response["Retry-After"] = str(RETRY_AFTER)
    return response
