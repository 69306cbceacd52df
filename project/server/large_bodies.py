"""Who may send a large body: strangers send forms, files come from those who are known.

It is asked before the body's first byte is stored.
"""

from __future__ import annotations

from conversations.access.session_user import session_key, user_from_headers
from conversations.models import AccessToken
from llm.db.outages import UNREACHABLE

_BEARER = b"bearer "


def has_credentials(headers: dict[bytes, bytes]) -> bool:
    """Whether there is a session or an access token, valid or not."""
    return bool(_find_token(headers) or session_key(headers.items()))


def is_known(headers: dict[bytes, bytes]) -> bool:
    """By a session or an access token. Reads the database."""
    try:
        if token := _find_token(headers):
            return AccessToken.objects.find(token) is not None
        return bool(user_from_headers(headers.items()).is_authenticated)
    except UNREACHABLE:
        return True  # Django answers that it is not available


def _find_token(headers: dict[bytes, bytes]) -> str:
    authorization = headers.get(b"authorization", b"")
    if authorization[: len(_BEARER)].lower() != _BEARER:
        return ""
    return authorization[len(_BEARER) :].strip().decode("latin-1")
