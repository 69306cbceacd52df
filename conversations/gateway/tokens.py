"""Who calls: an access token, from either of the headers in which clients send it."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.db.models.signals import post_delete, post_save
from django.utils import timezone

from conversations.engine.database import Database
from conversations.gateway.cache import Cache, forget_on_change
from conversations.gateway.records import Records
from conversations.models import TOKEN_USE_NOTED, AccessToken
from llm.errors import LLMError
from llm.provider import Route


class Unauthorized(LLMError):
    """The access token is missing, wrong, expired or revoked."""

    code, status, type = "E_UNAUTHORIZED", 401, "invalid_request_error"
    openai_code = "invalid_api_key"


class Tokens:
    """The tokens that were used a moment ago."""

    def __init__(self, database: Database, records: Records) -> None:
        self._database = database
        self._records = records

    async def find(self, headers: dict[bytes, bytes]) -> AccessToken:
        """The live token of a request. Raises Unauthorized."""
        text = _sent(headers)
        if not text:
            raise Unauthorized(
                "Send an access token as 'Authorization: Bearer …' or 'x-api-key: …'."
            )
        token = await _tokens.get(text, self._database)
        if token is None or (token.expires_at and token.expires_at < timezone.now()):
            raise Unauthorized
        self._note_use(token)
        return token

    def _note_use(self, token: AccessToken) -> None:
        last, now = token.last_used_at, timezone.now()
        if last is None or last < now - TOKEN_USE_NOTED:
            # Noted here as well, so that the requests of this minute write once.
            token.last_used_at = now
            rows = AccessToken.objects.filter(pk=token.pk)
            self._records.add(lambda: rows.update(last_used_at=now))


def admit(token: AccessToken, model: str, route: Route) -> None:
    """Whether this token may ask this model now; the place for its limits.

    Raises an LLMError that says what stands against it.
    """


def _sent(headers: dict[bytes, bytes]) -> str:
    scheme, _, rest = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer" and rest.strip():
        return rest.strip().decode("latin-1")
    return headers.get(b"x-api-key", b"").strip().decode("latin-1")


def _find(text: str) -> AccessToken | None:
    return AccessToken.objects.find(text)


_tokens: Cache[str, AccessToken | None] = Cache(_find)
_changed = forget_on_change(_tokens)
for _model in (AccessToken, get_user_model()):
    for _signal in (post_save, post_delete):
        _signal.connect(_changed, sender=_model)
