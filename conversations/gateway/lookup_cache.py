"""Cache of database look-ups that expires after a few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from django.db import transaction

from conversations.engine.database.executor import Database

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
        self._entries: dict[K, tuple[float, V]] = {}
        self._pending: dict[K, asyncio.Future[V]] = {}
        self._clear_count = 0  # number of calls of `clear`

    async def get(self, key: K, database: Database) -> V:
        entry = self._entries.get(key)
        if entry is not None and entry[0] > time.monotonic():
            return entry[1]
        pending = self._pending.get(key)
        if pending is None:
            pending = asyncio.ensure_future(self._load(key, database))
            self._pending[key] = pending
            pending.add_done_callback(lambda done: self._remove_pending(key, done))
        # The first request may be cancelled; the others still need the result.
        return await asyncio.shield(pending)

    def clear(self) -> None:
        self._clear_count += 1
        self._entries.clear()
        self._pending.clear()  # running look-ups answer only requests that already wait

    async def _load(self, key: K, database: Database) -> V:
        clear_count = self._clear_count
        value = await database.read(self._look_up, key)
        if clear_count == self._clear_count:
            if len(self._entries) >= self._size:
                self._entries.clear()
            self._entries[key] = time.monotonic() + self._seconds, value
        return value

    def _remove_pending(self, key: K, done: asyncio.Future[V]) -> None:
        if self._pending.get(key) is done:
            del self._pending[key]
        if not done.cancelled():
            done.exception()  # mark as retrieved: all waiting requests may be cancelled


def clear_on_change(cache: Cache[Any, Any]) -> Callable[..., None]:
    """A signal receiver that clears `cache` when a row changes."""

    def clear_cache(sender: Any, **kwargs: Any) -> None:
        cache.clear()
        # A look-up before the commit would cache the old row.
        transaction.on_commit(cache.clear)

    return clear_cache
