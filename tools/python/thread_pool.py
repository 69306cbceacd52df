"""Threads for tools that are plain functions and may block.

Each call has its own thread, up to a limit; further calls wait. A thread cannot be
stopped: when a call is cancelled or times out, its thread is abandoned and stops
counting against the limit, so that hanging tools do not block others. The number of
abandoned threads is limited too; beyond it a thread counts until it ends.

This is no ThreadPoolExecutor, because the interpreter joins its threads at exit: one
hanging tool would keep the server from stopping.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from django.db import connections

logger = logging.getLogger(__name__)

MAX_THREADS = 32  # for running calls; as many again may be abandoned


class ToolThreadPool:
    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._free = limit
        self._abandon_quota = limit
        self._waiting: deque[_Job] = deque()

    async def run(
        self,
        function: Callable[[], Any],
        name: str = "tool",
        *,
        on_abandoned: Callable[[], None] = lambda: None,
    ) -> Any:
        """Runs `function` in a thread, with the caller's context variables.

        Returns or raises what the function does. On cancellation, a function that has
        not started never runs; a running one is abandoned, and `on_abandoned` runs.
        """
        job = _Job(function, name)
        self._admit(job)
        try:
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            if self._abandon(job):
                on_abandoned()
            raise

    def _admit(self, job: _Job) -> None:
        with self._lock:
            if not self._free:
                self._waiting.append(job)
                return
            self._free -= 1
        self._start(job)

    def _start(self, job: _Job) -> None:
        thread = threading.Thread(
            target=self._work, args=(job,), name=f"tool-{job.name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as exc:  # the system has no thread left
            job.future.set_exception(exc)
            if after := self._next(job):
                self._start(after)

    def _work(self, job: _Job | None) -> None:
        while job is not None:
            job.run()
            job = self._next(job)

    def _next(self, job: _Job) -> _Job | None:
        """The next job for the thread of `job`, which has ended; None for none."""
        with self._lock:
            job.has_ended = True
            if job.is_abandoned:
                self._abandon_quota += 1
                return None
            if self._waiting:
                return self._waiting.popleft()
            self._free += 1
            return None

    def _abandon(self, job: _Job) -> bool:
        """Cancels or abandons the job. True if its function keeps running."""
        if job.future.cancel():
            with self._lock, suppress(ValueError):
                self._waiting.remove(job)
            return False
        after = None
        with self._lock:
            if job.has_ended:
                return False
            if job.is_abandoned or not self._abandon_quota:
                return True
            job.is_abandoned = True
            self._abandon_quota -= 1
            if self._waiting:
                after = self._waiting.popleft()
            else:
                self._free += 1
        logger.warning("%s was given up, but its thread cannot be stopped", job.name)
        if after:
            self._start(after)
        return True


class _Job:
    def __init__(self, function: Callable[[], Any], name: str) -> None:
        self.future: Future[Any] = Future()
        self.name = name
        self.has_ended = False
        self.is_abandoned = False
        self._function = function
        self._context = contextvars.copy_context()

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self._context.run(self._call)
        except BaseException as exc:  # the caller gets it from the future
            self.future.set_exception(exc)
        else:
            self.future.set_result(result)

    def _call(self) -> Any:
        try:
            return self._function()
        except StopIteration as exc:
            # An asyncio future cannot hold it, and the caller would wait forever.
            raise RuntimeError("a tool raised StopIteration") from exc
        finally:
            connections.close_all()  # this thread's own
