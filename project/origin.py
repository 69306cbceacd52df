"""Check of the Origin header of WebSockets, as Django checks it for forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import validate_host
from django.utils.http import is_same_domain

_PORTS = {"http": 80, "https": 443}
_SECURE = ("https", "wss")


def is_own_origin(scope: Mapping[str, Any]) -> bool:
    """True where a page of this site, or of one in CSRF_TRUSTED_ORIGINS, connects.

    Scheme, host and port must match. A browser always sends an Origin, so a connection
    without one is refused.
    """
    headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
    if sum(name == b"origin" for name, _ in scope["headers"]) != 1:
        return False
    try:
        origin = _parts(headers[b"origin"])
        own = _parts(f"{_scheme(scope, headers)}://{headers.get(b'host', '')}")
        if origin is None or own is None:
            return False
        if origin == own and validate_host(own[1], settings.ALLOWED_HOSTS):
            return True
        return any(_is_trusted(origin, each) for each in settings.CSRF_TRUSTED_ORIGINS)
    except ValueError:
        return False


def _scheme(scope: Mapping[str, Any], headers: Mapping[bytes, str]) -> str:
    """As Django's `request.scheme`: a trusted proxy says whether it is encrypted."""
    if settings.BEHIND_HTTPS:
        told = headers.get(b"x-forwarded-proto", "").partition(",")[0].strip()
        return "https" if told == "https" else "http"
    return "https" if scope.get("scheme") in _SECURE else "http"


def _parts(origin: str) -> tuple[str, str, int | None] | None:
    """Scheme, host and port. Raises ValueError."""
    found = urlsplit(origin)
    scheme, host = found.scheme.lower(), found.hostname
    is_bare = not (found.path or found.query or found.fragment or found.username)
    if not is_bare or not host or scheme not in _PORTS:
        return None
    host = f"[{host}]" if ":" in host else host
    return scheme, host.lower(), found.port or _PORTS[scheme]


def _is_trusted(origin: tuple[str, str, int | None], trusted: str) -> bool:
    """`https://*.example.org` stands for the subdomains, as Django takes it."""
    found = _parts(trusted.replace("://*.", "://."))
    if found is None:
        return False
    scheme, host, port = found
    return (scheme, port) == (origin[0], origin[2]) and is_same_domain(origin[1], host)
