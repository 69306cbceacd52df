"""Rate limits: requests, bytes and tokens a minute, for access tokens and users.

Each limit is a token bucket: it has room for one minute's amount, and refills steadily.
In one process the buckets are in memory; gateway processes beside it use those of it.
Scaled, processes have them in Redis, or in PostgreSQL where REDIS_URL is empty. While
that is unavailable each process counts for itself and logs a warning: failing limits
must not stop the service.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from django.conf import settings

from conversations.access.rate_buckets.buckets import (
    Buckets,
    Charge,
    SharedBuckets,
    Verdict,
)

__all__ = ["Charge", "Verdict", "aclose", "atake", "charge", "share", "take"]

_memory = Buckets()
#: Of the process that a gateway process belongs to.
_of_engine: SharedBuckets | None = None


def share(buckets: SharedBuckets) -> None:
    """Use these buckets from now on, instead of those in memory."""
    global _of_engine
    _of_engine = buckets


@cache
def _shared(redis_url: str) -> SharedBuckets:
    if redis_url:
        from conversations.access.rate_buckets.redis_buckets import RedisBuckets

        return RedisBuckets(redis_url)
    from conversations.access.rate_buckets.postgres_buckets import PostgresBuckets

    return PostgresBuckets()


def take(owner: str, charges: Sequence[Charge]) -> Verdict:
    """Make all charges or none. For threads."""
    if not charges:
        return Verdict(True, ())
    if settings.IS_SCALED:
        return _shared(settings.REDIS_URL).take(owner, charges)
    if _of_engine is not None:
        return _of_engine.take(owner, charges)
    return _memory.take(owner, charges, time.monotonic())


def charge(owner: str, used: Charge) -> None:
    """Charge unconditionally what was used; an amount below 0 is a refund."""
    take(owner, [replace(used, is_unconditional=True)])


async def atake(owner: str, charges: Sequence[Charge]) -> Verdict:
    """Like `take`, for event loops."""
    if settings.IS_SCALED and charges:
        return await _shared(settings.REDIS_URL).atake(owner, charges)
    if _of_engine is not None and charges:
        return await _of_engine.atake(owner, charges)
    return take(owner, charges)


async def aclose() -> None:
    """Close the connections of the running event loop."""
    if settings.IS_SCALED:
        await _shared(settings.REDIS_URL).aclose()
