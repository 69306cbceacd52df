"""The way of asynchronous code to the database: bounded, and not Channels' one thread.

Writes go through one thread, because SQLite has one writer and so the order of writes
is the order of calls. Reads have a few threads of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from django.db import connections

P = ParamSpec("P")
T = TypeVar("T")

READERS = 4  # threads


class Database:
    def __init__(self) -> None:
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="parley-write")
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="parley-read")
        self._opened: dict[int, Any] = {}

    def write(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]:
        """Runs even if whoever waits for it is cancelled."""
        return self._run(self._writer, function, *args, **kwargs)

    def read(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Awaitable[T]:
        return self._run(self._readers, function, *args, **kwargs)

    async def close(self) -> None:
        """What was asked for is done; then the connections go."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.shutdown(wait=True)
        self._readers.shutdown(wait=True)
        for connection in self._opened.values():
            connection.inc_thread_sharing()  # its own thread is gone
            connection.close()
        self._opened.clear()

    def _run(
        self,
        executor: ThreadPoolExecutor,
        function: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Awaitable[T]:
        def call() -> T:
            connection = connections["default"]
            self._opened[id(connection)] = connection
            connection.close_if_unusable_or_obsolete()
            return function(*args, **kwargs)

        return asyncio.get_running_loop().run_in_executor(executor, call)
