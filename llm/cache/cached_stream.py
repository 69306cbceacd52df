"""A stream of model answers that takes equal requests from the cache.

Staff switch the cache on for a model (option `cache_seconds`), a preset or an access
token, and a request for itself. An answer is stored only if its model has ended it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

import orjson
from django.db import DatabaseError
from django.utils import timezone

from llm.adaptation.adapt import merge_usage
from llm.adaptation.forwarding import convert
from llm.cache.request_digest import digest_of, is_cacheable
from llm.cache.stored_deltas import from_json, to_json
from llm.concurrency.database_thread import run_in_database_thread
from llm.errors import BadRequest
from llm.generation.result import cost_of
from llm.http.client import CacheUse, ProviderCall, Stream
from llm.models import CachedAnswer
from llm.provider import Route
from llm.wire.deltas import (
    NATURAL_ENDS,
    Delta,
    FinishDelta,
    ProofDelta,
    StartDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.request import Request

logger = logging.getLogger(__name__)

MAX_DELTAS = 100_000  # of an answer that is stored
MAX_ANSWER = 1_000_000  # bytes of JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheScope:
    """Whose answers are used, for how long, and with which functions.

    `safe_functions` are those whose calls have no side effect.
    """

    owner_id: int | None
    seconds: int
    leniency: str = ""  # which options may be left out of a request
    safe_functions: Collection[str] = ()


def describe_leniency(ignores_invalid: bool, droppable: Collection[str]) -> str:
    """For `CacheScope.leniency`."""
    return "all" if ignores_invalid else " ".join(sorted(droppable))


def with_cache(stream: Stream, route: Route, scope: CacheScope) -> Stream:
    """`stream`, the calls of `route`, with stored answers for equal requests."""
    if not scope.seconds:
        return stream

    async def answer(
        request: Request, call: ProviderCall
    ) -> AsyncGenerator[list[Delta], None]:
        digest = None
        if _may_store(request, route, scope):
            found = await _find(request, route, scope)
            if isinstance(found, CachedAnswer):
                for deltas in _replay(found, route, call):
                    yield deltas
                return
            digest = found
        collected: list[Delta] = []
        batches = stream(request, call)
        del request  # it may be large, and the answer may take long
        if digest:
            call.cache = CacheUse(is_hit=False, saved_cost=Decimal(0))
        async with aclosing(batches):
            async for deltas in batches:
                if digest and len(collected) <= MAX_DELTAS:
                    collected += deltas
                yield deltas
        if digest and _is_storable(collected, call, route):
            await _store(digest, collected, call, route, scope)

    return answer


def _may_store(request: Request, route: Route, scope: CacheScope) -> bool:
    if request.forwarded is not None:
        try:
            request = convert(request.forwarded, route)
        except BadRequest:  # of content that only its host understands
            return False
    return is_cacheable(request, scope.safe_functions)


async def _find(
    request: Request, route: Route, scope: CacheScope
) -> CachedAnswer | str | None:
    """The stored answer; without one the request's digest, under which it is stored
    later. None if the request has no digest or the database cannot be read."""
    try:
        return await run_in_database_thread(_read, request, route, scope)
    except DatabaseError as exc:
        logger.warning("the answer cache cannot be read: %s", type(exc).__name__)
        return None


def _read(
    request: Request, route: Route, scope: CacheScope
) -> CachedAnswer | str | None:
    digest = digest_of(request, route, scope.owner_id, scope.leniency)
    if digest is None:
        return None
    # A scope with a shorter time does not take answers that are older.
    oldest = timezone.now() - timedelta(seconds=scope.seconds)
    rows = CachedAnswer.objects.filter(pk=digest, created_at__gt=oldest)
    return rows.filter(expires_at__gt=timezone.now()).first() or digest


def _replay(found: CachedAnswer, route: Route, call: ProviderCall) -> list[list[Delta]]:
    stored = orjson.loads(found.answer)
    call.route, call.started_at, call.ttft = route, time.monotonic(), 0.0
    call.latency = 0.0
    call.degraded = stored["degraded"]
    call.cache = CacheUse(
        is_hit=True, stored_at=found.created_at, saved_cost=found.cost
    )
    # The response repeats the stored usage; this call itself used nothing.
    call.usage = UsageDelta()
    return [[delta] for delta in from_json(stored["deltas"])]


def _is_storable(deltas: list[Delta], call: ProviderCall, route: Route) -> bool:
    """Whether the model of `route` has ended the answer itself.

    A call that must be sent back with its proof is not stored: the proof is valid for
    the key that got it.
    """
    if call.error or len(deltas) > MAX_DELTAS or not _is_from(call, route):
        return False
    ends = [delta for delta in deltas if isinstance(delta, FinishDelta)]
    if not ends or ends[-1].reason not in NATURAL_ENDS:
        return False
    kinds = {type(delta) for delta in deltas}
    return not {ProofDelta, ToolCallDelta} <= kinds


def _is_from(call: ProviderCall, route: Route) -> bool:
    used = call.route or route
    return (used.model_id, used.model) == (route.model_id, route.model)


async def _store(
    digest: str,
    deltas: list[Delta],
    call: ProviderCall,
    route: Route,
    scope: CacheScope,
) -> None:
    try:
        await run_in_database_thread(_write, digest, deltas, call, route, scope)
    except DatabaseError as exc:  # the answer itself has arrived
        logger.warning("an answer could not be cached: %s", type(exc).__name__)


def _write(
    digest: str,
    deltas: list[Delta],
    call: ProviderCall,
    route: Route,
    scope: CacheScope,
) -> None:
    without_proofs = [each for each in deltas if not isinstance(each, ProofDelta)]
    try:
        deltas_json = to_json(without_proofs)
        answer = orjson.dumps({"deltas": deltas_json, "degraded": list(call.degraded)})
    except (TypeError, UnicodeDecodeError):
        return  # a number that JSON cannot express, or bytes that are no text
    if len(answer) > MAX_ANSWER:
        return
    now = timezone.now()
    CachedAnswer.objects.update_or_create(
        digest=digest,
        defaults={
            "owner_id": scope.owner_id,
            "model_id": route.model_id,
            "answer": answer.decode(),
            "cost": _cost(deltas, call, route),
            "created_at": now,
            "expires_at": now + timedelta(seconds=scope.seconds),
        },
    )


def _cost(deltas: list[Delta], call: ProviderCall, route: Route) -> Decimal | None:
    """What the answer cost in USD; None if unknown."""
    usage, start = UsageDelta(), StartDelta()
    for delta in deltas:
        if isinstance(delta, UsageDelta):
            usage = merge_usage(usage, delta)
        elif isinstance(delta, StartDelta):
            start = delta
    made = ProviderCall(start=start, usage=usage)
    return cost_of(made, call.route or route)
