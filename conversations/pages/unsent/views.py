"""Pages that give back what a person wrote, where the server did not accept the form:
its session has ended, its CSRF token is old, a required step comes first, or what it
would change is gone.

Nothing is stored. The page has what the request had, and is not stored by browsers.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils.cache import add_never_cache_headers

from conversations.pages.unsent.form_texts import RefusedForm, read_form

_PAGE = "conversations/unsent/page.html"


def give_back(request: HttpRequest) -> HttpResponse | None:
    """The page for a form of a person who is not signed in; None for other forms."""
    form = read_form(request)
    if form is None or request.user.is_authenticated:
        return None
    return _page(request, form, why="signed_out")


def give_back_before(request: HttpRequest, step: HttpResponseBase) -> HttpResponseBase:
    """The response to a request that comes before a required step. `step` redirects to
    that step; a form with texts gets a page that has them and a link to the step."""
    location = step.headers.get("Location")
    form = read_form(request) if location else None
    if location is None or form is None:
        return step
    return _page(request, form, why="step", step=location)


def give_back_missed(request: HttpRequest) -> HttpResponse | None:
    """The page for a form whose conversation, folder or other row was not found."""
    form = read_form(request)
    if form is None or not (form.texts or form.file_names):
        return None
    return _page(request, form, why="missing", status=404, may_send=False)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The CSRF check has refused the request; the setting CSRF_FAILURE_VIEW."""
    is_own = _is_of_own_page(request)
    form = read_form(request) if is_own is not False else None
    if form is None:
        response = render(request, "403_csrf.html", status=403)
        add_never_cache_headers(response)
        return response
    # Without the proof that a page of this server sent it, it is not made ready to be
    # sent: another site may have made the person's browser send it.
    return _page(request, form, why="token", may_send=is_own is True)


def _page(
    request: HttpRequest,
    form: RefusedForm,
    *,
    may_send: bool = True,
    status: int = 403,
    **context: Any,
) -> HttpResponse:
    context |= {
        "refused_form": form,
        "may_send": may_send and form.may_be_sent,
        "action": request.get_full_path(),
    }
    response = render(request, _PAGE, context, status=status)
    add_never_cache_headers(response)
    return response


def _is_of_own_page(request: HttpRequest) -> bool | None:
    """Whether a page of this server sent the form; None if the browser does not say."""
    origin = request.headers.get("Origin")
    if origin is None:
        return None
    trusted = settings.CSRF_TRUSTED_ORIGINS
    if origin in (f"{request.scheme}://{request.get_host()}", *trusted):
        return True
    # The brackets of an IPv6 address would be a set of characters in a pattern.
    return any(fnmatchcase(origin, each) for each in trusted if "[" not in each)
