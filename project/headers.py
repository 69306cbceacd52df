"""Middleware that sets security and cache headers on every response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.signals import user_logged_out
from django.http import HttpRequest, HttpResponseBase

#: Browser features that no page uses; frames may not use them either.
PERMISSIONS_POLICY = ", ".join(
    f"{feature}=()"
    for feature in (
        "accelerometer",
        "browsing-topics",
        "camera",
        "display-capture",
        "geolocation",
        "gyroscope",
        "magnetometer",
        "microphone",
        "midi",
        "payment",
        "usb",
    )
)


def set_headers(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    def respond(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        if response.headers.get("Content-Type", "").startswith("application/json"):
            response.headers.setdefault("Cache-Control", "no-store")
        if getattr(request, "has_signed_out", False):
            # Not "storage" or "cookies": they hold the drafts of other accounts and the
            # cookie that identifies the browser.
            response.headers["Clear-Site-Data"] = '"cache"'
        return response

    return respond


def note_sign_out(request: Any = None, **_: Any) -> None:
    if request is not None:
        request.has_signed_out = True


user_logged_out.connect(note_sign_out)
