"""Origin check for WebSockets, by the rules that Django applies to forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest

_PORTS = {"http": 80, "https": 443}
_SECURE = ("https", "wss")


def is_own_origin(scope: Mapping[str, Any]) -> bool:
    """Return True for a page of this site or of a site in CSRF_TRUSTED_ORIGINS.

    Scheme, host and port must match. A browser always sends an Origin, so a connection
    without one is refused.
    """
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    if sum(name == b"origin" for name, _ in scope["headers"]) != 1:
        return False
    try:
        origin = _parse_origin(headers[b"origin"])
        own = _parse_origin(f"{_scheme(scope, headers)}://{headers.get(b'host', '')}")
        if origin is None or own is None:
            return False
        if origin == own and _is_allowed(own[1]):
            return True
        return any(_is_trusted(origin, each) for each in settings.CSRF_TRUSTED_ORIGINS)
    except ValueError:
        return False


def _scheme(scope: Mapping[str, Any], headers: Mapping[bytes, str]) -> str:
    """Like Django's `request.scheme`: a trusted proxy's X-Forwarded-Proto counts."""
    if settings.BEHIND_HTTPS:
        forwarded = headers.get(b"x-forwarded-proto", "").partition(",")[0].strip()
        return "https" if forwarded == "https" else "http"
    return "https" if scope.get("scheme") in _SECURE else "http"


def _parse_origin(origin: str) -> tuple[str, str, int | None] | None:
    """Scheme, host and port. Raises ValueError."""
    found = urlsplit(origin)
    scheme, host = found.scheme.lower(), found.hostname
    is_bare = not (found.path or found.query or found.fragment or found.username)
    if not is_bare or not host or scheme not in _PORTS:
        return None
    host = f"[{host}]" if ":" in host else host
    return scheme, host.lower(), found.port or _PORTS[scheme]


def _is_trusted(origin: tuple[str, str, int | None], trusted: str) -> bool:
    """`https://*.example.org` matches all subdomains, as in Django."""
    found = _parse_origin(trusted.replace("://*.", "://."))
    if found is None:
        return False
    scheme, host, port = found
    is_same = origin[1] == host
    if host.startswith("."):
        is_same = origin[1] == host[1:] or origin[1].endswith(host)
    return is_same and (scheme, port) == (origin[0], origin[2])


def _is_allowed(host: str) -> bool:
    """Whether ALLOWED_HOSTS contains the host."""
    request = HttpRequest()
    request.META = {"HTTP_HOST": host, "HTTP_X_FORWARDED_HOST": host}
    try:
        request.get_host()
    except DisallowedHost:
        return False
    return True
