"""A row that is deleted while a request changes it: nothing is saved, and the answer
says so."""

from __future__ import annotations

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin


def is_row_gone(exc: BaseException | None) -> bool:
    """Whether `save(update_fields=…)` has found no row any more. That is the one error
    of this class that Django raises itself: those of a database have a cause."""
    return type(exc) is DatabaseError and exc.__cause__ is None


class DeletedRowMiddleware(MiddlewareMixin):
    """A page, of the chat or of the admin, that would change such a row is 409."""

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponse | None:
        if not is_row_gone(exception):
            return None
        page = render_to_string("deleted_meanwhile.html", request=request)
        return HttpResponse(page, status=409)
