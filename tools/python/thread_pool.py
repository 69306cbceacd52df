"""Threads for tools that are plain functions and may block.

Each call has a thread to itself, up to a limit; further calls wait. A thread waits a
moment for the next call, because to start one costs more than many calls. It cannot be
stopped: when its call is cancelled or times out, it is abandoned and stops counting
against the limit, so that hanging tools do not block others. The number of abandoned
threads is limited too; beyond it a thread counts until it ends. A call that waits for a
thread does not use its own time, but is given up after a while.

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
from contextlib import AbstractContextManager, nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Any

from django.db import connections

from tools.errors import NoFreeThread

logger = logging.getLogger(__name__)

MAX_THREADS = 32  # for running calls; as many again may be abandoned
IDLE_TIME = 1.0  # seconds that a thread waits for another call
LONGEST_WAIT = 60.0  # seconds that a call waits for a thread


class ToolThreadPool:
    def __init__(self, limit: int, longest_wait: float = LONGEST_WAIT) -> None:
        self._lock = threading.Lock()
        self._limit, self._longest_wait = limit, longest_wait
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
        pause_timer: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Any:
        """Run `function` in a thread, with the caller's context variables. While it
        waits for one, the block of `pause_timer` is open.

        Returns or raises what the function does; raises NoFreeThread. On cancellation,
        a function that has not started never runs; a running one is abandoned, and
        `on_abandoned` runs.
        """
        job = _Job(function, name)
        must_wait = not self._admit(job)
        try:
            if must_wait:
                with pause_timer():
                    await self._wait_for_thread(job)
            return await job.result
        except asyncio.CancelledError:
            if self._abandon(job):
                on_abandoned()
            raise

    @property
    def abandoned(self) -> int:
        """Threads that do not count against the limit."""
        with self._lock:
            return self._limit - self._abandon_quota

    @property
    def waiting(self) -> int:
        """Calls that wait for a thread."""
        return len(self._waiting)

    async def _wait_for_thread(self, job: _Job) -> None:
        """Raises NoFreeThread."""
        await asyncio.wait(
            [job.begun, job.result],
            timeout=self._longest_wait,
            return_when=asyncio.FIRST_COMPLETED,
        )
        if not job.begun.done() and not job.result.done() and self._withdraw(job):
            logger.error("%s was given up: no thread was free for it", job.name)
            raise NoFreeThread

    def _admit(self, job: _Job) -> bool:
        """Start the job. False if it must wait."""
        with self._lock:
            if not self._free:
                job.waits = True
                self._waiting.append(job)
                return False
            self._free -= 1
        self._start(job)
        return True

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
                job.begin()
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

    def _withdraw(self, job: _Job) -> bool:
        """Cancel the job. False if it has started."""
        with self._lock:
            if job.has_started:
                return False
            job.is_cancelled = True
            with suppress(ValueError):
                self._waiting.remove(job)
            return True

    def _abandon(self, job: _Job) -> bool:
        """Cancel or abandon the job. True if its function keeps running."""
        after = None
        if self._withdraw(job):
            return False
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
        self.begun: asyncio.Future[None] = self._loop.create_future()
        self.name = name
        self.waits = False  # for a thread, so that `begun` is awaited
        self.is_cancelled = False  # before it has started
        self.has_started = False
        self.is_abandoned = False
        self.has_ended = False
        self._function = function
        self._context = contextvars.copy_context()

    def begin(self) -> None:
        """Called by the thread that runs it."""
        if self.waits:
            self._tell_loop(self.begun, self.begun.set_result, None)

    def run(self) -> None:
        try:
            value = self._context.run(self._call)
        except BaseException as exc:  # the caller gets it from the future
            self.fail(exc)
        else:
            self._tell_loop(self.result, self.result.set_result, value)

    def fail(self, exc: BaseException) -> None:
        self._tell_loop(self.result, self.result.set_exception, exc)

    def _tell_loop(
        self, future: asyncio.Future[Any], settle: Callable[[Any], None], value: Any
    ) -> None:
        try:
            self._loop.call_soon_threadsafe(_settle, future, settle, value)
        except RuntimeError:
            logger.debug("%s ended after its event loop", self.name)

    def _call(self) -> Any:
        try:
            return self._function()
        except StopIteration as exc:
            # An asyncio future cannot hold it, and the caller would wait forever.
            raise RuntimeError("a tool raised StopIteration") from exc
        finally:
            connections.close_all()  # this thread's own


def _settle(
    future: asyncio.Future[Any], settle: Callable[[Any], None], value: Any
) -> None:
    if not future.done():  # nobody has cancelled it
        settle(value)
