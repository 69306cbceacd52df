"""A row that is deleted while a request changes it: nothing is saved, and the answer
says so."""

from __future__ import annotations

import logging

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin

#: How Django says that a `save` has found no row; the class alone has other errors too.
_MESSAGES = frozenset(
    {
        "Forced update did not affect any rows.",
        "Save with update_fields did not affect any rows.",
    }
)

logger = logging.getLogger(__name__)


def is_row_gone(exc: BaseException | None) -> bool:
    """Whether `save(update_fields=…)` has found no row any more."""
    return type(exc) is DatabaseError and str(exc) in _MESSAGES


def log_row_gone(request: HttpRequest) -> None:
    """A view that never finds its row has a fault, which only the log can show."""
    match = request.resolver_match
    name = match.view_name if match is not None else "an unknown view"
    logger.info("a row was deleted before %s could save it", name)


class DeletedRowMiddleware(MiddlewareMixin):
    """A page, of the chat or of the admin, that would change such a row is 409."""

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponse | None:
        if not is_row_gone(exception):
            return None
        log_row_gone(request)
        page = render_to_string("deleted_meanwhile.html", request=request)
        return HttpResponse(page, status=409)
