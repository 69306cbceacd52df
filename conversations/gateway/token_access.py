"""Authenticate access tokens, and apply their permissions and limits to requests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.signals import m2m_changed, post_delete, post_save
from django.utils import timezone

from conversations import engine
from conversations.access import admission, maintenance
from conversations.access.errors import Unauthorized as Unauthorized
from conversations.access.limits import admission as usage_limits
from conversations.access.limits import applicable
from conversations.access.limits.amounts import limits_of_models
from conversations.access.limits.applicable import Applied
from conversations.access.policy import terms
from conversations.engine import notifications
from conversations.engine.database.executor import Database
from conversations.engine.metering import Meter
from conversations.gateway.errors import InputTooLarge
from conversations.gateway.gateway_request import GatewayRequest
from conversations.gateway.lookup_cache import Cache, clear_on_change
from conversations.gateway.write_behind import WriteBehindQueue
from conversations.input.checks import find_oversize
from conversations.models.access_token import USE_INTERVAL, AccessToken, Scope
from conversations.turns.history import BYTES_A_TOKEN, estimate_prompt
from llm.errors import BadRequest
from llm.wire.items import Item


class TokenAuthenticator:
    """Finds the access token of a request, through a cache of recently used tokens."""

    def __init__(self, database: Database, write_queue: WriteBehindQueue) -> None:
        self._database = database
        self._write_queue = write_queue

    async def authenticate(self, headers: dict[bytes, bytes]) -> AccessToken:
        """The valid token in `Authorization` or `x-api-key`. Raises Unauthorized,
        TermsNotAccepted."""
        text = _token_text(headers)
        if not text:
            raise Unauthorized(
                "Send an access token as 'Authorization: Bearer …' or 'x-api-key: …'."
            )
        token = await _tokens.get(text, self._database)
        if token is None or (token.expires_at and token.expires_at < timezone.now()):
            raise Unauthorized
        if (
            terms.state.binds_tokens is not False
            and token.user_id not in terms.state.accepted
        ):
            await self._database.read(terms.check_token, token.user_id)
        self._note_use(token)
        return token

    def _note_use(self, token: AccessToken) -> None:
        last, now = token.last_used_at, timezone.now()
        if last is None or last < now - USE_INTERVAL:
            # Set on the cached token too, so that only one request a minute writes.
            token.last_used_at = now
            rows = AccessToken.objects.filter(pk=token.pk)
            self._write_queue.add(lambda: rows.update(last_used_at=now))


async def admit_request(
    token: AccessToken, peer: str, headers: dict[bytes, bytes], *, anthropic: bool
) -> dict[str, str]:
    """Check the token's address, scope and request limit. Returns rate limit headers.

    Raises Forbidden, WrongAddress, TooFast.
    """
    if token.networks:
        forwarded = headers.get(b"x-forwarded-for", b"").decode("latin-1")
        admission.check_address(token, peer, forwarded)
    if Scope.GATEWAY not in token.scopes:
        raise admission.scope_missing(token, Scope.GATEWAY)
    if not token.requests_per_minute:
        return {}
    verdict = await admission.atake_request(token)
    return dict(admission.rate_limit_headers(verdict, anthropic=anthropic))


def _refuse_unlimited(applied: Applied) -> None:
    """A stored response would be charged to the first model, whichever answered.
    Raises BadRequest."""
    if any(each.key.model_id is not None for each in applied):
        raise BadRequest(
            'models: add "store": false, as there are limits of single models.',
            param="models",
        )


async def apply_limits(
    gateway_request: GatewayRequest,
    database: Database,
    *,
    is_stored: bool = False,
    body_size: float = math.inf,
) -> GatewayRequest:
    """The request with its token's limits applied. Raises BadRequest, InputTooLarge,
    TooFast, UnderMaintenance, UsageLimitReached.

    A stored response gets no meter here, because the engine adds one. `body_size`:
    bytes of the body that all of its messages are part of, if there is one.
    """
    limit = settings.MAX_INPUT_SIZE
    if body_size > limit and (size := find_oversize(_items(gateway_request), limit)):
        raise InputTooLarge(
            f"A message is {size} bytes long, files inside it included; the limit is"
            f" {limit} bytes."
        )
    if maintenance.state.notice.refuses_messages:
        maintenance.check_open()
    token, taken = gateway_request.token, 0
    headers: dict[str, str] = {}
    applied: Applied = ()
    if applicable.state.exists is not False:
        applied = await _find_limits(token, database)
    if token.budget is None and not token.tokens_per_minute and not applied:
        return gateway_request
    if applied:
        if is_stored and gateway_request.alternatives:
            _refuse_unlimited(applied)
        headers = await _count_request(gateway_request, applied, database)
    if token.tokens_per_minute:
        taken = estimate_prompt(gateway_request.request)
        verdict = await admission.atake_tokens(token, taken, is_taken=not is_stored)
        anthropic = gateway_request.dialect.errors == "anthropic"
        headers |= admission.rate_limit_headers(verdict, anthropic=anthropic)
    if is_stored:
        return replace(gateway_request, limits=headers)
    meter = Meter.of(
        token,
        gateway_request.route,
        applied,
        taken=taken,
        alternatives=gateway_request.alternatives,
    )
    if meter:
        meter.database = database
    return replace(gateway_request, limits=headers, meter=meter)


async def _find_limits(token: AccessToken, database: Database) -> Applied:
    """The limits of use of the token and its user."""
    found = applicable.cached_limits(token.user_id, token.pk)
    if found is None:
        found = await database.read(applicable.limits_of, token.user_id, token.pk)
    return found


async def _count_request(
    gateway_request: GatewayRequest, applied: Applied, database: Database
) -> dict[str, str]:
    """Returns headers of what is left. Raises UsageLimitReached."""
    size = BYTES_A_TOKEN * estimate_prompt(gateway_request.request)
    await database.write(usage_limits.admit_request, applied, size)
    shown = limits_of_models(applied, gateway_request.route.model_id)
    return await database.read(usage_limits.build_headers, shown)


def _items(gateway_request: GatewayRequest) -> Sequence[Item]:
    """The messages of the request. Raises BadRequest."""
    request = gateway_request.request
    if request.forwarded is not None:
        request = request.forwarded.convert(gateway_request.route)
    return request.items


def _token_text(headers: dict[bytes, bytes]) -> str:
    scheme, _, rest = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer" and rest.strip():
        return rest.strip().decode("latin-1")
    return headers.get(b"x-api-key", b"").strip().decode("latin-1")


def _find(text: str) -> AccessToken | None:
    if (token := AccessToken.objects.find(text)) is not None:
        _ = token.model_ids  # cached now: the event loop must not query
    return token


def _notify_processes(sender: Any, update_fields: Any = None, **kwargs: Any) -> None:
    """Notify other processes of a change, unless only a time of last use changed."""
    if not update_fields or not {"last_used_at", "last_login"}.issuperset(
        update_fields
    ):
        transaction.on_commit(partial(engine.publish_notification, "tokens"))


_tokens: Cache[str, AccessToken | None] = Cache(_find)
_clear_tokens = clear_on_change(_tokens)
for _model in (AccessToken, get_user_model()):
    for _signal in (post_save, post_delete):
        _signal.connect(_clear_tokens, sender=_model)
        _signal.connect(_notify_processes, sender=_model)
for _receiver in (_clear_tokens, _notify_processes):
    m2m_changed.connect(_receiver, sender=AccessToken.allowed_models.through)
notifications.on("tokens", _tokens.clear)
