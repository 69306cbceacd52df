"""Middleware that sets security and cache headers on every response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.signals import user_logged_out
from django.http import HttpRequest, HttpResponseBase

#: Browser features that no page uses; frames may not use them either.
_UNUSED = ", ".join(
    f"{feature}=()"
    for feature in (
        "accelerometer",
        "browsing-topics",
        "camera",
        "display-capture",
        "geolocation",
        "gyroscope",
        "magnetometer",
        "midi",
        "payment",
        "usb",
    )
)
#: Only our own pages may hear, for dictation; frames may not.
PERMISSIONS_POLICY = f"{_UNUSED}, microphone=(self)"
_OF_READERS = ("cookie", "accept-language")  # request headers


def set_headers(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        if response.headers.get("Content-Type", "").startswith("application/json"):
            response.headers.setdefault("Cache-Control", "no-store")
        if "immutable" in response.headers.get("Cache-Control", ""):
            _drop_reader_from_vary(response)
        if getattr(request, "has_signed_out", False):
            # Not "storage" or "cookies": they hold the drafts of other accounts and the
            # cookie that identifies the browser.
            response.headers["Clear-Site-Data"] = '"cache"'
        return response

    return respond


def _drop_reader_from_vary(response: HttpResponseBase) -> None:
    """What never changes is the same for every reader. The middlewares of sessions and
    languages run for every page, and name what they have read themselves."""
    names = [name.strip() for name in response.headers.get("Vary", "").split(",")]
    kept = [name for name in names if name.lower() not in _OF_READERS]
    del response["Vary"]
    if kept and kept != [""]:
        response["Vary"] = ", ".join(kept)


def note_sign_out(request: Any = None, **_: Any) -> None:
    if request is not None:
        request.has_signed_out = True


user_logged_out.connect(note_sign_out)
