"""axe-core on the pages of errors, as the handlers make them, in both themes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db import OperationalError
from django.http import Http404, HttpRequest
from django.shortcuts import render
from django.test import RequestFactory
from django.views import defaults
from playwright.sync_api import Browser, Route

from project.exception_handler import server_error
from project.server.server_errors import find_page
from tests.integration.accessibility.checks import find_faults
from tests.integration.accessibility.site import DESKTOP, PHONE
from tests.integration.browser.test_chat import browser
from tests.serving import BASE

__all__ = ["browser"]

pytestmark = [pytest.mark.browser]

ORIGIN = "http://parley.example"


def _page_after(exc: Exception) -> Callable[[HttpRequest], bytes]:
    def respond(request: HttpRequest) -> bytes:
        try:
            raise exc
        except type(exc):
            return server_error(request).content

    return respond


def _page_of_large_form(_: HttpRequest) -> bytes:
    headers = [(b"accept", b"text/html")]
    found = find_page({"path": "/chat/x/", "headers": headers}, 413, 2**20)
    assert found
    return found[1]


def _too_many(request: HttpRequest) -> bytes:
    context = {"message": "Too many failed sign-ins. Try again in 2 minutes."}
    return render(request, "registration/locked_out.html", context).content


def _too_fast(request: HttpRequest) -> bytes:
    context = {"message": "Too many requests. Try again in 2 seconds."}
    name = "conversations/sharing/too_fast.html"
    return render(request, name, context, status=429).content


PAGES: dict[int | str, Callable[[HttpRequest], bytes]] = {
    "429 behind a link": _too_fast,
    403: lambda request: (
        defaults.permission_denied(request, PermissionDenied()).content
    ),
    404: lambda request: defaults.page_not_found(request, Http404()).content,
    405: lambda request: render(request, "405.html", {"conversation_id": "x"}).content,
    413: _page_of_large_form,
    429: _too_many,
    500: _page_after(ValueError("x")),
    503: _page_after(OperationalError("database is locked")),
    507: _page_after(OSError(errno.ENOSPC, "x")),
}


def _send_static(route: Route) -> None:
    path = route.request.url.removeprefix(f"{ORIGIN}/static/").partition("?")[0]
    file = BASE / "static" / path
    route.fulfill(path=file) if file.is_file() else route.abort()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["wide", "narrow"])
@pytest.mark.parametrize("status", PAGES)
def test_the_page_of_an_error_has_no_fault(
    browser: Browser, status: int | str, screen: dict[str, Any], theme: str
):
    request = RequestFactory().get("/chat/x/", headers={"accept": "text/html"})
    request.user = AnonymousUser()
    body = PAGES[status](request)
    with browser.new_context(color_scheme=theme, **screen) as context:
        page = context.new_page()
        page.route(f"{ORIGIN}/static/**", _send_static)
        page.route(
            f"{ORIGIN}/chat/x/",
            lambda route: route.fulfill(
                status=int(str(status)[:3]),
                body=body,
                content_type="text/html; charset=utf-8",
            ),
        )
        page.goto(f"{ORIGIN}/chat/x/")
        assert find_faults(page, is_touched=screen is PHONE) == []
