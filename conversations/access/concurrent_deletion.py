"""A row that is deleted while a request changes it: nothing is saved, and the answer
says so."""

from __future__ import annotations

import logging

from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin
from django.views.defaults import page_not_found

from tools.execute import format_trace

#: Django's messages of a `save` that found no row; their class has other errors too.
_MESSAGES = frozenset(
    {
        "Forced update did not affect any rows.",
        "Save with update_fields did not affect any rows.",
    }
)

logger = logging.getLogger(__name__)


def is_row_gone(exc: BaseException | None) -> bool:
    """Whether `save(update_fields=…)`, `refresh_from_db` or `get` has found no row any
    more. A missing row of a one-to-one relation is an AttributeError too, and a fault
    of the program."""
    if isinstance(exc, ObjectDoesNotExist):
        return not isinstance(exc, AttributeError)
    return type(exc) is DatabaseError and str(exc) in _MESSAGES


def log_row_gone(request: HttpRequest, exc: BaseException) -> None:
    """A view that never finds its row has a fault, which only the log can show: by the
    class and the places in the code, as an earlier error in the chain may name
    values."""
    match = request.resolver_match
    name = match.view_name if match is not None else "an unknown view"
    trace = format_trace(exc)
    logger.warning("a row was deleted before %s could save it: %s", name, trace)


class DeletedRowMiddleware(MiddlewareMixin):
    """Answers with 409 where a page of the chat or the admin would change such a row,
    and with 404 where it would show it."""

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponse | None:
        if not is_row_gone(exception):
            return None
        log_row_gone(request, exception)
        if request.method in ("GET", "HEAD"):
            return page_not_found(request, exception)
        page = render_to_string("deleted_meanwhile.html", request=request)
        return HttpResponse(page, status=409)
