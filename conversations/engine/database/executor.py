"""Database access for asynchronous code through a few threads, instead of Channels'
single one.

All writes of one turn go through one thread, so they are executed in the order of the
calls. SQLite has one writer, so there one thread writes for all turns. Reads have
threads of their own. With several writers, heartbeats have one too, because a lease
could expire while its renewal waits behind a long write.

A thread that queries SQLite gives up the interpreter at each statement, and a busy
event loop returns it only after 5 ms. So calls take many times their CPU time while the
loop is busy, and the engine limits how many turns start at once: a heartbeat must not
wait behind hundreds of them (decision 18).
"""

from __future__ import annotations

import asyncio
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar

from django.db import (
    InterfaceError,
    OperationalError,
    close_old_connections,
    connections,
)

from conversations.engine.database.disk_space import is_full
from conversations.engine.process import crash_points
from llm.db.outages import UNREACHABLE

P = ParamSpec("P")
T = TypeVar("T")

READERS = 2  # threads
PAUSE = 0.1  # seconds between attempts to connect


def is_database_unavailable(exc: BaseException | None) -> bool:
    if not isinstance(exc, UNREACHABLE) or is_full(exc):
        return False
    if isinstance(exc, DatabaseClosed):
        return True
    # SQLite raises OperationalError for a missing table too.
    return connections["default"].vendor == "postgresql" or "locked" in str(exc)


class DatabaseClosed(InterfaceError):
    """A call after `close`, at the end of a drain."""


class Database:
    """`patience`: seconds for which a call waits for an unavailable database."""

    def __init__(
        self,
        *,
        writers: int = 1,
        readers: int = READERS,
        patience: float = 0.0,
    ) -> None:
        self._writers = [_create_pool(1, "parley-write") for _ in range(writers)]
        self._beats = self._writers[0]
        if writers > 1:
            self._beats = _create_pool(1, "parley-beat")
        self._readers = _create_pool(readers, "parley-read")
        self._patience = patience
        self._is_closed = False
        #: Calls that wait for a thread or run, by the kind of thread.
        self.calls: dict[str, set[Future[Any]]] = {
            kind: set() for kind in ("write", "beat", "read")
        }
        pools = dict.fromkeys([*self._writers, self._beats], 1)
        self._pools = [*pools.items(), (self._readers, readers)]

    def write(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Runs even if the caller is cancelled while it waits for the thread."""
        # The thread of the turn that is written: its claim or id is the first argument.
        about = getattr(args[0], "turn_id", args[0]) if args else None
        number = zlib.crc32(about.encode()) if isinstance(about, str) else 0
        writer = self._writers[number % len(self._writers)]
        # Cancelling the future would take a call that waits out of the queue.
        return asyncio.shield(self._run("write", writer, function, *args, **kwargs))

    def beat(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """A write that renews leases."""
        return self._run("beat", self._beats, function, *args, **kwargs)

    def read(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        return self._run("read", self._readers, function, *args, **kwargs)

    @property
    def threads(self) -> int:
        return sum(threads for _, threads in self._pools)

    async def close(self) -> None:
        """Execute the submitted calls, then close the connections. A second call does
        nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        for pool, threads in self._pools:
            _close_connections(pool, threads)
            pool.shutdown(wait=True)

    def _run(
        self,
        kind: str,
        executor: ThreadPoolExecutor,
        function: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> asyncio.Future[T]:
        def call() -> T:
            close_old_connections()
            if self._patience:
                _ensure_connected(self._patience)
            if crash_points.IS_ARMED:
                return crash_points.around(function, *args, **kwargs)
            return function(*args, **kwargs)

        try:
            future = executor.submit(copy_context().run, call)  # for lines of the log
        except RuntimeError as exc:  # the executor was shut down
            raise DatabaseClosed("the engine is going down") from exc
        calls = self.calls[kind]
        calls.add(future)
        future.add_done_callback(calls.discard)
        return asyncio.wrap_future(future)


def _create_pool(threads: int, name: str) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix=name)


def _close_connections(pool: ThreadPoolExecutor, threads: int) -> None:
    """Close the connection of each thread, in the thread itself."""
    barrier = threading.Barrier(threads)

    def close() -> None:
        barrier.wait()  # so that each thread of the pool makes one of the calls
        connections.close_all()

    for future in [pool.submit(close) for _ in range(threads)]:
        future.result()


def _ensure_connected(patience: float) -> None:
    """Connect to the database. Nothing has been sent yet, so nothing can happen twice.
    Raises OperationalError when `patience` seconds have passed."""
    until = time.monotonic() + patience
    while True:
        try:
            with connections["default"].cursor():
                return
        except OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE)
