"""Threads on which a process reads imports: a few, the rest waits."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from threading import Lock, Thread
from typing import TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class BoundedThreads:
    """Calls `work` with each key, on at most `limit` threads at once."""

    def __init__(self, limit: int, work: Callable[[int], None], name: str) -> None:
        self._limit, self._work, self._name = limit, work, name
        self._lock = Lock()
        self._waiting: deque[int] = deque()
        self._running = 0

    def add(self, key: int) -> None:
        """Raises RuntimeError where the process can start no thread."""
        with self._lock:
            if self._running == self._limit:
                self._waiting.append(key)
                return
            self._running += 1
        thread = Thread(target=self._run, args=(key,), name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._running -= 1
            raise

    def _run(self, key: int | None) -> None:
        while key is not None:
            try:
                self._work(key)
            except Exception as exc:  # the others do not wait for this one
                logger.error("%s %s ended: %s", self._name, key, type(exc).__name__)
            key = self._next()

    def _next(self) -> int | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            return None


def call_beside(
    function: Callable[[], T], meanwhile: Callable[[], None], interval: float
) -> T:
    """What the function returns on a thread of its own. `meanwhile` runs
    here every `interval` seconds until then; where it raises, the other thread ends
    by itself."""
    result: Future[T] = Future()

    def call() -> None:
        try:
            result.set_result(function())
        except BaseException as exc:
            result.set_exception(exc)

    run = copy_context().run
    Thread(target=run, args=(call,), name="call-beside", daemon=True).start()
    while not wait([result], interval).done:
        meanwhile()
    return result.result()
