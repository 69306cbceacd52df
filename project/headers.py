"""Middleware that sets the headers every answer has: for browsers and for caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.signals import user_logged_out
from django.http import HttpRequest, HttpResponseBase

#: What no page uses, and no page that embeds ours or is embedded may use.
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
            # Not "storage" or "cookies": other accounts' drafts and browsers stay.
            response.headers["Clear-Site-Data"] = '"cache"'
        return response

    return respond


def note_sign_out(request: Any = None, **_: Any) -> None:
    if request is not None:
        request.has_signed_out = True


user_logged_out.connect(note_sign_out)
