"""Authenticate access tokens, and apply their permissions and limits to requests."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.utils import timezone

from conversations import admission, engine
from conversations.addresses import client_address
from conversations.engine import hints
from conversations.engine.database import Database
from conversations.gateway.cache import Cache, forget_on_change
from conversations.gateway.faults import InputTooLarge
from conversations.gateway.records import Records
from conversations.gateway.routes import Way
from conversations.history import estimate
from conversations.inline_data import oversized
from conversations.metering import Meter
from conversations.token_errors import Unauthorized as Unauthorized
from conversations.tokens import USE_NOTED, AccessToken, Scope

if TYPE_CHECKING:
    from conversations.gateway.asked import Asked


class Tokens:
    """Finds the access token of a request, through a cache of recently used tokens."""

    def __init__(self, database: Database, records: Records) -> None:
        self._database = database
        self._records = records

    async def find(self, headers: dict[bytes, bytes]) -> AccessToken:
        """The valid token in `Authorization` or `x-api-key`. Raises Unauthorized."""
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
        if last is None or last < now - USE_NOTED:
            # Set on the cached token too, so that only one request a minute writes.
            token.last_used_at = now
            rows = AccessToken.objects.filter(pk=token.pk)
            self._records.add(lambda: rows.update(last_used_at=now))


async def enter(
    token: AccessToken, peer: str, headers: dict[bytes, bytes], *, anthropic: bool
) -> dict[str, str]:
    """Check the token's address, scope and request limit. Returns rate limit headers.

    Raises Forbidden, WrongAddress, TooFast.
    """
    forwarded = headers.get(b"x-forwarded-for", b"").decode("latin-1")
    address = client_address(peer, forwarded)
    admission.check_door(token, address, Scope.GATEWAY)
    if not token.requests_per_minute:
        return {}
    verdict = await admission.atake_request(token)
    return dict(admission.headers_of(verdict, anthropic=anthropic))


def permitted(token: AccessToken, name: str, way: Way) -> Way:
    """The chain without models that the token may not use. Raises ModelNotAvailable."""
    admission.check_model(token, way.first.model_id, name)
    if not token.model_ids:
        return way
    return replace(way, routes=[r for r in way.routes if token.may_ask(r.model_id)])


async def admit(asked: Asked, database: Database, *, is_kept: bool = False) -> Asked:
    """The request with its token's limits applied. Raises InputTooLarge, TooFast.

    A stored response gets no meter here, because the engine adds one.
    """
    if size := oversized(asked.request.items, settings.MAX_INPUT_SIZE):
        raise InputTooLarge(
            f"A message is {size} bytes long, files inside it included; the limit is"
            f" {settings.MAX_INPUT_SIZE} bytes."
        )
    token, headers, taken = asked.token, {}, 0
    if token.tokens_per_minute:
        request = asked.request
        taken = estimate(request.instructions, request.items, request.tools)
        verdict = await admission.atake_tokens(token, taken, is_taken=not is_kept)
        anthropic = asked.dialect.errors == "anthropic"
        headers = dict(admission.headers_of(verdict, anthropic=anthropic))
    if is_kept:
        return replace(asked, limits=headers)
    if meter := Meter.of(token, asked.route, taken=taken):
        meter.database = database
    return replace(asked, limits=headers, meter=meter)


def _sent(headers: dict[bytes, bytes]) -> str:
    scheme, _, rest = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer" and rest.strip():
        return rest.strip().decode("latin-1")
    return headers.get(b"x-api-key", b"").strip().decode("latin-1")


def _find(text: str) -> AccessToken | None:
    if (token := AccessToken.objects.find(text)) is not None:
        _ = token.model_ids  # cached now: the event loop must not query
    return token


def _tell(sender: Any, update_fields: Any = None, **kwargs: Any) -> None:
    """Notify other processes of a change, unless only a time of last use changed."""
    if not update_fields or not {"last_used_at", "last_login"}.issuperset(
        update_fields
    ):
        transaction.on_commit(partial(engine.tell, "tokens"))


_tokens: Cache[str, AccessToken | None] = Cache(_find)
_changed = forget_on_change(_tokens)
for _model in (AccessToken, get_user_model()):
    for _signal in (post_save, post_delete):
        _signal.connect(_changed, sender=_model)
        _signal.connect(_tell, sender=_model)
for _act in (_changed, _tell):
    m2m_changed.connect(_act, sender=AccessToken.allowed_models.through)
hints.on("tokens", _tokens.clear)
