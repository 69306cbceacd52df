"""What the database said a moment ago, so that a request need not ask it again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from django.db import transaction

from conversations.engine.database import Database

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SECONDS = 5.0  # an answer is good for so long, if nobody says that it is not
SIZE = 10_000  # answers; beyond them all are forgotten


class Cache(Generic[K, V]):
    """The answers of a synchronous look-up, on one event loop.

    Requests that ask the same at the same moment wait for one look-up. What it raises
    is everybody's, and not kept. `clear` may be called from any thread.
    """

    def __init__(
        self, look_up: Callable[[K], V], seconds: float = SECONDS, size: int = SIZE
    ) -> None:
        self._look_up = look_up
        self._seconds = seconds
        self._size = size
        self._kept: dict[K, tuple[float, V]] = {}
        self._asking: dict[K, asyncio.Future[V]] = {}
        self._cleared = 0  # how often

    async def get(self, key: K, database: Database) -> V:
        kept = self._kept.get(key)
        if kept is not None and kept[0] > time.monotonic():
            return kept[1]
        asking = self._asking.get(key)
        if asking is None:
            asking = asyncio.ensure_future(self._ask(key, database))
            self._asking[key] = asking
            asking.add_done_callback(lambda done: self._answered(key, done))
        # Whoever asked first may hang up; the others still want to know.
        return await asyncio.shield(asking)

    def clear(self) -> None:
        self._cleared += 1
        self._kept.clear()
        self._asking.clear()  # those under way answer who waits, and nobody after

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
            done.exception()  # somebody hears it, or all have hung up


def forget_on_change(cache: Cache[Any, Any]) -> Callable[..., None]:
    """A receiver of signals of rows that `cache` was made of."""

    def changed(sender: Any, **kwargs: Any) -> None:
        cache.clear()
        # Whoever looks before the change is committed would keep what was.
        transaction.on_commit(cache.clear)

    return changed
