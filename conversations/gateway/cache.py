"""Cache of database look-ups that expires after a few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from django.db import transaction

from conversations.engine.database import Database

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SECONDS = 5.0  # until an entry expires, unless the cache is cleared before
SIZE = 10_000  # entries; a full cache is cleared


class Cache(Generic[K, V]):
    """Results of a synchronous look-up, for one event loop.

    Concurrent requests for the same key share one look-up. An exception reaches all of
    them and is not cached. `clear` may be called from any thread.
    """

    def __init__(
        self, look_up: Callable[[K], V], seconds: float = SECONDS, size: int = SIZE
    ) -> None:
        self._look_up = look_up
        self._seconds = seconds
        self._size = size
        self._kept: dict[K, tuple[float, V]] = {}
        self._asking: dict[K, asyncio.Future[V]] = {}
        self._cleared = 0  # number of calls of `clear`

    async def get(self, key: K, database: Database) -> V:
        kept = self._kept.get(key)
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.ensure_future(self._ask(key, database))
            self._asking[key] = asking
            asking.add_done_callback(lambda done: self._answered(key, done))
        # The first request may be cancelled; the others still need the result.
        return await asyncio.shield(asking)

    def clear(self) -> None:
        self._cleared += 1
        self._kept.clear()
        self._asking.clear()  # running look-ups answer only requests that already wait

    async def _ask(self, key: K, database: Database) -> V:
        cleared = self._cleared
        value = await database.read(self._look_up, key)
        if cleared == self._cleared:
            if len(self._kept) >= self._size:
                self._kept.clear()
            self._kept[key] = time.monotonic() + self._seconds, value
        return value

    def _answered(self, key: K, done: asyncio.Future[V]) -> None:
        if self._asking.get(key) is done:
            del self._asking[key]
        if not done.cancelled():
            done.exception()  # mark as retrieved: all waiting requests may be cancelled


def forget_on_change(cache: Cache[Any, Any]) -> Callable[..., None]:
    """A signal receiver that clears `cache` when a row changes."""

    def changed(sender: Any, **kwargs: Any) -> None:
        cache.clear()
        # A look-up before the commit would cache the old row.
        transaction.on_commit(cache.clear)

    return changed
