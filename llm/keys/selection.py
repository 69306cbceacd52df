"""Selection of a key for each request, and key states learned from the responses.

A key rests for `Retry-After` at a rate limit, and for a while without credit. It is
disabled after a permanent refusal (401), and rests for one model after a 403. This
applies in this process at once and is written to the key's row, from which other
processes read it within `key_pool.MAX_AGE`.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_never

from django.db import DatabaseError

from llm import router
from llm.concurrency.database_thread import run_in_database_thread
from llm.conf import settings
from llm.errors import (
    InvalidKey,
    LLMError,
    ModelNotAvailable,
    QuotaExhausted,
    RateLimited,
)
from llm.http.client import ProviderCall
from llm.keys import pool as key_pool
from llm.keys.pool import Key, KeyPool
from llm.models import ApiKey
from llm.provider import Route
from llm.wire.items import Issuer, Item

AVOID_TIME = 1.0  # seconds, after a refusal without a stated time
QUOTA_REST = 600.0  # seconds, for an exhausted quota without a stated time
MODEL_REST = 300.0  # seconds, after a 403 for a model; staff may have fixed it by then
MAX_REST = 86_400.0  # seconds; longer values of a host are shortened
_SPREAD = 0.1  # seconds over which calls that waited for a key are spread

Wait = Callable[[float], Awaitable[Any]]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Disable:
    """The provider rejects the key permanently."""


@dataclass(frozen=True, slots=True)
class Rest:
    seconds: float


@dataclass(frozen=True, slots=True)
class RestForModel:
    seconds: float


@dataclass(frozen=True, slots=True)
class Avoid:
    """Other keys are preferred for a moment."""


Verdict = Disable | Rest | RestForModel | Avoid


def verdict_of(error: LLMError) -> Verdict | None:
    """What a provider's error implies for the key; None for nothing."""
    status, retry_after = error.upstream_status, min(error.retry_after or 0.0, MAX_REST)
    match error:
        case InvalidKey() | ModelNotAvailable() if status == 403:
            return RestForModel(retry_after or MODEL_REST)
        case InvalidKey() if not status:
            return Avoid()  # it was never sent
        case InvalidKey():
            return Disable() if error.is_certain else Rest(retry_after or QUOTA_REST)
        case QuotaExhausted() if status == 401:
            return Disable()
        case QuotaExhausted():
            is_certain = error.is_certain
            return Rest(retry_after or QUOTA_REST) if is_certain else Avoid()
        case RateLimited():
            return Rest(retry_after) if retry_after else Avoid()
    return None


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class KeySelection:
    """Selects the keys for all requests of one call."""

    affinity: str
    wait: Wait
    now: Callable[[], float]
    _waited: float = 0.0  # seconds, of `LLM_KEY_WAIT`
    _tried: frozenset[int] = frozenset()
    _unreadable: frozenset[int] = frozenset()
    _refreshed: frozenset[int] = frozenset()  # keys whose rejected token was dropped

    async def select(
        self, route: Route, items: Sequence[Item], *, issuer: Issuer | None = None
    ) -> Route:
        """Return `route` with the key for the next request: preferably that of
        `issuer`, or of the proofs in `items`.

        Waits briefly while all keys rest. Raises LLMError: InvalidKey, or RateLimited
        with the time until the first key may be used.
        """
        if (pool := key_pool.pool_of(route)) is None:
            return route
        preferred = None
        if len(pool) > 1:
            issuers = _issuers(items) if issuer is None else [issuer]
            preferred = _issuing_key(issuers, route)
        while True:
            if pool.is_stale:
                await _reload(pool)
            chosen = pool.choose(
                route.model,
                self.now(),
                affinity=self.affinity,
                preferred=preferred,
                tried=self._tried,
                excluded=self._unreadable,
            )
            if chosen is None:
                await self._wait_for_key(pool, route)
                continue
            try:
                if chosen.pk == route.key_id:
                    return route
                return router.with_key(route, pool.provider, chosen)
            except InvalidKey:
                self._unreadable |= {chosen.pk}
                if len(self._unreadable) == len(pool):
                    raise

    def has_other(self, route: Route) -> bool:
        """Whether a key that was not tried yet may be used now."""
        pool = key_pool.pool_of(route)
        tried = self._tried | self._unreadable
        return pool is not None and pool.has_other(route.model, self.now(), tried)

    async def judge(self, route: Route, error: LLMError, call: ProviderCall) -> bool:
        """Record the error of a request. True if the request failed due to its key."""
        pool, pk = key_pool.pool_of(route), route.key_id
        if pool is None or pk is None or not call.started_at:
            return False
        self._tried |= {pk}
        verdict, key = verdict_of(error), pool.get(pk)
        if verdict is None or key is None:
            return False
        if pool.provider.is_own_server and not isinstance(error, RateLimited):
            # A user who writes `/fail 401` to the demo chooses its answer, and would
            # disable the only key for all users.
            return False
        is_token = route.endpoint.credentials is not None and call.http_status == 401
        if is_token and pk not in self._refreshed:
            # The token expired early or was revoked; a new one may work.
            self._refreshed |= {pk}
            self._tried -= {pk}
            return True
        await self._apply(verdict, pool, key, route.model, error)
        return True

    async def _wait_for_key(self, pool: KeyPool, route: Route) -> None:
        refusal = pool.refusal(route.model, self.now(), excluded=self._unreadable)
        delay = refusal.retry_after
        if delay is None or delay > settings.LLM_KEY_WAIT - self._waited:
            raise refusal
        delay += random.random() * _SPREAD
        self._waited += delay
        await self.wait(delay)

    async def _apply(
        self, verdict: Verdict, pool: KeyPool, key: Key, model: str, error: LLMError
    ) -> None:
        now = self.now()
        reason = f"{error.code}: {error}"
        rows = ApiKey.every.filter(pk=key.row.pk, hint=key.row.hint)
        at = datetime.fromtimestamp(now, UTC)
        about = (key.row.label, pool.provider.name)
        match verdict:
            case Avoid():
                key.avoid_until = now + AVOID_TIME
                return
            case Disable():
                known = key.state.is_disabled
                key.disable(reason, now)
                if not known and await _write(pool, key, rows.disable, reason, at):
                    text = "The key %r of the provider %r was disabled: %s"
                    logger.error(text, *about, reason)
            case Rest(seconds):
                until = now + seconds
                if until <= key.state.rests_until + _SPREAD:
                    return  # another request has recorded that
                key.rest(until, reason, now)
                if await _write(pool, key, rows.rest, _to_datetime(until), reason, at):
                    level = logging.INFO
                    if isinstance(error, QuotaExhausted):
                        level = logging.WARNING
                    text = "The key %r of the provider %r rests for %.1f s: %s"
                    logger.log(level, text, *about, seconds, reason)
            case RestForModel(seconds):
                until, known = now + seconds, key.state.rest_of(model, now) > 0
                if known:
                    return
                key.rest_for_model(model, until, now)
                arguments = (model, _to_datetime(until), reason, at)
                if await _write(pool, key, rows.rest_for_model, *arguments):
                    text = "The key %r of the provider %r rests for the model %r: %s"
                    logger.warning(text, *about, model, reason)
            case _:
                assert_never(verdict)


def _to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _issuers(items: Sequence[Item]) -> Iterator[Issuer]:
    """The issuers of proofs in the history, last first: only they can read them."""
    for item in reversed(items):
        if issuer := (item.get("provider_data") or {}).get("issuer"):
            yield issuer


def _issuing_key(issuers: Iterable[Issuer], route: Route) -> int | None:
    """The key of the first issuer that is one of this account's keys."""
    own = route.issuer
    for issuer in issuers:
        if issuer["provider"] != own["provider"]:
            continue
        provider, _, key = str(issuer["route"]).partition(":")
        key = key.partition(":")[0]
        if provider == str(route.provider_id) and key.isdecimal():
            return int(key)
    return None


# The rows


async def _write(
    pool: KeyPool, key: Key, change: Callable[..., int], *arguments: Any
) -> bool:
    """Write the change; True if a row was changed. If the database fails the call
    continues: the state in this process stays."""
    try:
        changed = await run_in_database_thread(change, *arguments)
    except DatabaseError as exc:
        name = type(exc).__name__
        logger.warning(
            "the state of the key %r was not stored: %s", key.row.label, name
        )
        return False
    if not changed:
        # Another process was faster, or staff have entered another key.
        key.trust_row()
        await _reload(pool)
    return bool(changed)


async def _reload(pool: KeyPool) -> None:
    pool.read_at = time.monotonic()  # so that concurrent calls do not read as well
    try:
        await run_in_database_thread(router.reload_keys, pool)
    except DatabaseError as exc:
        logger.warning("keys could not be reloaded: %s", type(exc).__name__)
