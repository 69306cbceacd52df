from __future__ import annotations

from typing import Any

from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from conversations.models import AccessToken


class TokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer <AccessToken>`. Other schemes are other people's."""

    def authenticate(self, request: Request) -> tuple[Any, AccessToken] | None:
        scheme, *rest = get_authorization_header(request).split() or [b""]
        if scheme.lower() != b"bearer":
            return None
        token = AccessToken.objects.find(_text(rest)) if len(rest) == 1 else None
        if token is None:
            raise AuthenticationFailed(
                "The access token is wrong, expired or revoked.", code="invalid_api_key"
            )
        token.note_use()
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="api"'


def _text(rest: list[bytes]) -> str:
    return rest[0].decode("latin-1")
