"""The page for an error that no view answers: without database, session or user."""

from __future__ import annotations

from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils import translation


def wants_page(accept: str) -> bool:
    """Whether a browser asks, for a person; programs want an error object or a line."""
    return "text/html" in accept


def render_error_page(
    status: int,
    limit: int | None = None,
    *,
    is_running: bool = True,
    unavailable: str = "database",
) -> str:
    context = {
        "status": status,
        "limit": limit,
        "is_running": is_running,
        "unavailable": unavailable,
    }
    return render_to_string("unavailable.html", context)


def render_for(accept_language: str, status: int, limit: int | None = None) -> str:
    """The error page in the language that the header prefers, as far as translated.

    For errors before Django has the request: no middleware has chosen a language.
    """
    request = HttpRequest()
    request.META = {"HTTP_ACCEPT_LANGUAGE": accept_language}
    with translation.override(translation.get_language_from_request(request)):
        # A server that runs answers 503 with a view.
        return render_error_page(status, limit, is_running=status != 503)
