"""Who may send a large body: strangers send forms, files come from those who are known.

It is asked before the body's first byte is stored.
"""

from __future__ import annotations

from django.db import DatabaseError

from conversations.access.session_user import user_from_headers
from conversations.models import AccessToken

_BEARER = b"bearer "


def is_known(headers: dict[bytes, bytes]) -> bool:
    """By a session or an access token. Reads the database."""
    authorization = headers.get(b"authorization", b"")
    try:
        if authorization[: len(_BEARER)].lower() == _BEARER:
            token = authorization[len(_BEARER) :].strip().decode("latin-1")
            return AccessToken.objects.find(token) is not None
        return bool(user_from_headers(headers.items()).is_authenticated)
    except DatabaseError:
        return True  # Django answers that it is not available
