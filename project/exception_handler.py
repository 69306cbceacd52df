"""Handlers of uncaught exceptions.

`not_found` gives back what a person wrote. `server_error` responds with 503 if the
database or a bucket of files is unreachable, and with 507 if the disk is full, each
with Retry-After, and with 500 otherwise. Browsers get a page.
"""

from __future__ import annotations

import sys

from django.http import HttpRequest, HttpResponse, JsonResponse

from conversations.api import errors
from conversations.engine.database import disk_space
from conversations.engine.database.executor import is_database_unavailable
from conversations.pages.unsent.views import give_back_missed
from conversations.turns.file_storage import FilesUnavailable
from project.error_page import render_error_page, wants_page

RETRY_AFTER = 2  # seconds
_UNREACHABLE = (
    "The database cannot be reached; nothing was lost. Try again in a moment."
)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's `handler404`."""
    is_page = wants_page(request.headers.get("Accept", ""))
    page = give_back_missed(request) if is_page else None
    return page or errors.not_found(request, exception)


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's `handler500`."""
    exc = sys.exc_info()[1]
    if disk_space.report_full(exc):
        return _respond(
            request, 507, disk_space.CODE, disk_space.MESSAGE, disk_space.RETRY_AFTER
        )
    if isinstance(exc, FilesUnavailable):
        seconds = int(exc.retry_after or RETRY_AFTER)
        return _respond(
            request, 503, str(exc.openai_code), str(exc), seconds, what="files"
        )
    if is_database_unavailable(exc):
        return _respond(request, 503, "database_unavailable", _UNREACHABLE, RETRY_AFTER)
    return errors.server_error(request)


def _respond(
    request: HttpRequest,
    status: int,
    code: str,
    text: str,
    retry_after: int,
    *,
    what: str = "database",
) -> HttpResponse:
    response: HttpResponse
    accept = request.headers.get("Accept", "")
    if wants_page(accept) and not errors.is_api(request):
        response = HttpResponse(
            render_error_page(status, unavailable=what), status=status
        )
    else:
        error = {"message": text, "type": "server_error", "param": None, "code": code}
        response = JsonResponse({"error": error}, status=status)
    response["Retry-After"] = str(retry_after)
    return response
