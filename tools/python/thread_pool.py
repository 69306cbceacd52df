"""Threads for tools that are plain functions and may block.

Each call has a thread to itself, up to a limit; further calls wait. A thread waits a
moment for the next call, because to start one costs more than many calls. It cannot be
stopped: when its call is cancelled or times out, it is abandoned and stops counting
against the limit, so that hanging tools do not block others. The number of abandoned
threads is limited too; beyond it a thread counts until it ends.

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
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from django.db import connections

logger = logging.getLogger(__name__)

MAX_THREADS = 32  # for running calls; as many again may be abandoned
IDLE_TIME = 1.0  # seconds that a thread waits for another call


class ToolThreadPool:
    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._free = limit
        self._abandon_quota = limit
        self._waiting: deque[_Job] = deque()
        self._idle: list[SimpleQueue[_Job]] = []  # of threads that wait for a job

    async def run(
        self,
        function: Callable[[], Any],
        name: str = "tool",
        *,
        on_abandoned: Callable[[], None] = lambda: None,
    ) -> Any:
        """Run `function` in a thread, with the caller's context variables.

        Returns or raises what the function does. On cancellation, a function that has
        not started never runs; a running one is abandoned, and `on_abandoned` runs.
        """
        job = _Job(function, name)
        self._admit(job)
        try:
            return await job.result
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
        with self._lock:
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            idle.put(job)
            return
        thread = threading.Thread(
            target=self._work, args=(job,), name=f"tool-{job.name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as exc:  # the system has no thread left
            job.fail(exc)
            if after := self._next(job):
                self._start(after)

    def _work(self, job: _Job | None) -> None:
        jobs: SimpleQueue[_Job] = SimpleQueue()
        while job is not None:
            with self._lock:
                job.has_started = not job.is_cancelled
            if job.has_started:
                threading.current_thread().name = f"tool-{job.name}"
                job.run()
            job = self._next(job) or self._wait_for_job(job, jobs)

    def _wait_for_job(self, job: _Job, jobs: SimpleQueue[_Job]) -> _Job | None:
        """The next job of a thread without work; None if it shall end."""
        if job.is_abandoned:
            return None
        with self._lock:
            self._idle.append(jobs)
        try:
            return jobs.get(timeout=IDLE_TIME)
        except Empty:
            with self._lock:
                if jobs in self._idle:
                    self._idle.remove(jobs)
                    return None
            return jobs.get()  # it is being put in

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
        """Cancel or abandon the job. True if its function keeps running."""
        after = None
        with self._lock:
            if not job.has_started:
                job.is_cancelled = True
                with suppress(ValueError):
                    self._waiting.remove(job)
                return False
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
        logger.warning(
            "%s was abandoned, because its thread cannot be stopped", job.name
        )
        if after:
            self._start(after)
        return True


class _Job:
    """One call. The pool's lock guards its states, in this order."""

    def __init__(self, function: Callable[[], Any], name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self.result: asyncio.Future[Any] = self._loop.create_future()
        self.name = name
        self.is_cancelled = False  # before it has started
        self.has_started = False
        self.is_abandoned = False
        self.has_ended = False
        self._function = function
        self._context = contextvars.copy_context()

    def run(self) -> None:
        try:
            value = self._context.run(self._call)
        except BaseException as exc:  # the caller gets it from the future
            self.fail(exc)
        else:
            self._tell_loop(self.result.set_result, value)

    def fail(self, exc: BaseException) -> None:
        self._tell_loop(self.result.set_exception, exc)

    def _tell_loop(self, settle: Callable[[Any], None], value: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, settle, value)
        except RuntimeError:
            logger.debug("%s ended after its event loop", self.name)

    def _settle(self, settle: Callable[[Any], None], value: Any) -> None:
        if not self.result.done():  # nobody has cancelled it
            settle(value)

    def _call(self) -> Any:
        try:
            return self._function()
        except StopIteration as exc:
            # An asyncio future cannot hold it, and the caller would wait forever.
            raise RuntimeError("a tool raised StopIteration") from exc
        finally:
            connections.close_all()  # this thread's own
