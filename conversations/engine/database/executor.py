"""Database access for asynchronous code through a few threads, instead of Channels'
single one.

All writes of one turn go through one thread, so they are executed in the order of the
calls. SQLite has one writer, so there one thread writes for all turns. Reads have
threads of their own. With several writers, heartbeats have one too, because a lease
could expire while its renewal waits behind a long write.

A thread that queries SQLite gives up the interpreter at each statement, and a busy
event loop returns it only after 5 ms: thirty times a turn, while the loop does work
that could wait. So the loop blocks until the thread is done, which is faster for both
(decision 14).
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from django.db import InterfaceError, OperationalError, connections

from conversations.engine.database.disk_space import is_full
from conversations.engine.process import crash_points

P = ParamSpec("P")
T = TypeVar("T")

REST = 0.005  # seconds; Python switches threads after this time
READERS = 2  # threads
PAUSE = 0.1  # seconds between attempts to connect


def is_database_unavailable(exc: BaseException | None) -> bool:
    if not isinstance(exc, OperationalError | InterfaceError) or is_full(exc):
        return False
    if isinstance(exc, DatabaseClosed):
        return True
    # SQLite raises OperationalError for a missing table too.
    return connections["default"].vendor == "postgresql" or "locked" in str(exc)


class DatabaseClosed(InterfaceError):
    """A call after `close`, at the end of a drain."""


class DatabaseThreads(ThreadPoolExecutor):
    """A pool whose `submit` blocks until the call is done, for at most `rest`
    seconds."""

    def __init__(self, number: int, *, name: str, rest: float) -> None:
        super().__init__(number, thread_name_prefix=name)
        self._rest = rest

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        future = super().submit(fn, *args, **kwargs)
        if self._rest:
            with suppress(TimeoutError):
                future.exception(self._rest)
        return future


class Database:
    """`patience`: seconds for which a call waits for an unavailable database. `rest`:
    seconds for which the event loop blocks at most while a call runs."""

    def __init__(
        self,
        *,
        writers: int = 1,
        readers: int = READERS,
        patience: float = 0.0,
        rest: float = 0.0,
    ) -> None:
        self._writers = [
            DatabaseThreads(1, name="parley-write", rest=rest) for _ in range(writers)
        ]
        self._beats = self._writers[0]
        if writers > 1:
            self._beats = DatabaseThreads(1, name="parley-beat", rest=rest)
        self._readers = DatabaseThreads(readers, name="parley-read", rest=rest)
        self._patience = patience
        self._opened: dict[int, Any] = {}

    def write(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """Runs even if the caller is cancelled."""
        return self._run(self._writer(*args), function, *args, **kwargs)

    def beat(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """A write that renews leases."""
        return self._run(self._beats, function, *args, **kwargs)

    def read(
        self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        return self._run(self._readers, function, *args, **kwargs)

    async def close(self) -> None:
        """Execute the submitted calls, then close the connections."""
        await asyncio.to_thread(self._close)

    def _writer(self, *args: object) -> ThreadPoolExecutor:
        """The thread of the turn that is written; its claim or id is the first
        argument."""
        if len(self._writers) == 1 or not args:
            return self._writers[0]
        about = getattr(args[0], "turn_id", args[0])
        if not isinstance(about, str):
            return self._writers[0]
        return self._writers[zlib.crc32(about.encode()) % len(self._writers)]

    def _close(self) -> None:
        for writer in self._writers:
            writer.shutdown(wait=True)
        self._beats.shutdown(wait=True)
        self._readers.shutdown(wait=True)
        for connection in self._opened.values():
            connection.inc_thread_sharing()  # the thread that created it has ended
            connection.close()
        self._opened.clear()

    def _run(
        self,
        executor: ThreadPoolExecutor,
        function: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> asyncio.Future[T]:
        def call() -> T:
            connection = connections["default"]
            self._opened[id(connection)] = connection
            connection.close_if_unusable_or_obsolete()
            if self._patience:
                _ensure_connected(connection, self._patience)
            return crash_points.around(function, *args, **kwargs)

        try:
            future = executor.submit(call)
        except RuntimeError as exc:  # the executor was shut down
            raise DatabaseClosed("the engine is going down") from exc
        return _wrap_done(future) if future.done() else asyncio.wrap_future(future)


def _wrap_done(done: Future[T]) -> asyncio.Future[T]:
    """Wrap a completed call, so that awaiting it does not suspend the caller."""
    wrapped: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    if (exc := done.exception()) is not None:
        wrapped.set_exception(exc)
    else:
        wrapped.set_result(done.result())
    return wrapped


def _ensure_connected(connection: Any, patience: float) -> None:
    """Connect to the database. Nothing has been sent yet, so nothing can happen twice.
    Raises OperationalError when `patience` seconds have passed."""
    until = time.monotonic() + patience
    while True:
        try:
            connection.close_if_health_check_failed()
            connection.ensure_connection()
            return
        except OperationalError:
            if time.monotonic() > until:
                raise
            time.sleep(PAUSE)
