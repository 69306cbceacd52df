"""The threads of Django's requests: a few at work, and those that wait for other hosts.

A hundred requests at once would otherwise open a hundred connections, which compete
for SQLite's only write lock. A request takes a permit before it gets a thread, so none
stands behind another one that takes long. Who waits for a host lends it out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from django.db import connections

from llm.concurrency.thread_lending import server_lend

THREADS = 8
MOST_LENT = 32  # requests that wait for hosts without a permit; more keep theirs


@dataclass(slots=True, eq=False)
class RequestThread:
    executor: ThreadPoolExecutor = field(
        default_factory=partial(
            ThreadPoolExecutor, 1, thread_name_prefix="parley-django"
        )
    )
    streams: int = 0  # bodies of earlier responses that are being sent

    def end(self) -> None:
        self.executor.submit(connections.close_all)
        self.executor.shutdown(wait=False)


class RequestThreads:
    """All but `_lend` runs in the event loop."""

    def __init__(self) -> None:
        self._free = THREADS  # permits
        self._owed = 0  # permits that were lent and are to be given back
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: list[RequestThread] = []
        self._lent = 0
        self._lent_lock = Lock()

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[RequestThread]:
        """A thread for one request."""
        if self._free:
            self._free -= 1
        else:
            await self._wait_for_permit()
        server_lend.set(partial(self._lend, asyncio.get_running_loop()))
        thread = self._take_thread()
        try:
            yield thread
        finally:
            self._put_back(thread)
            self._free_permit()

    def _take_thread(self) -> RequestThread:
        """One that sends nothing, as each piece would wait for the request's end."""
        silent = (thread for thread in reversed(self._idle) if not thread.streams)
        found = next(silent, None)
        if found is None and len(self._idle) < THREADS + MOST_LENT:
            return RequestThread()
        found = found or self._idle[0]
        self._idle.remove(found)
        return found

    def _put_back(self, thread: RequestThread) -> None:
        if len(self._idle) >= THREADS and not thread.streams:
            thread.end()
        else:
            self._idle.append(thread)

    # Permits

    async def _wait_for_permit(self) -> None:
        permit = asyncio.get_running_loop().create_future()
        self._waiting.append(permit)
        try:
            await permit
        except asyncio.CancelledError:
            if permit.done() and not permit.cancelled():
                self._free_permit()
            raise

    def _free_permit(self) -> None:
        if self._owed:
            self._owed -= 1
        else:
            self._add_permit()

    def _add_permit(self) -> None:
        while self._waiting:
            permit = self._waiting.popleft()
            if not permit.done():
                permit.set_result(None)
                return
        self._free += 1

    def _owe_permit(self) -> None:
        if self._free:
            self._free -= 1
        else:
            self._owed += 1

    # Lending

    @contextmanager
    def _lend(self, loop: asyncio.AbstractEventLoop) -> Iterator[bool]:
        """Called in the thread of a request. It closes its connections to the database,
        because the thread that gets the permit opens others."""
        with self._lent_lock:
            is_lent = self._lent < MOST_LENT
            self._lent += is_lent
        if not is_lent:
            yield False
            return
        _close_connections()
        loop.call_soon_threadsafe(self._add_permit)
        try:
            yield True
        finally:
            with self._lent_lock:
                self._lent -= 1
            loop.call_soon_threadsafe(self._owe_permit)


def _close_connections() -> None:
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
