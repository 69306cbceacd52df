"""An event loop in the thread of a synchronous caller, which runs only while it waits.

Between two waits the loop stands still and its tasks remain. Database functions of its
tasks run in the caller's thread, and so over the caller's connection and in the
caller's transaction.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async

P = ParamSpec("P")
T = TypeVar("T")

_calling_thread: ContextVar[CallingThread | None] = ContextVar(
    "calling_thread", default=None
)


async def run_with_orm(
    function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run a synchronous function that may use the ORM: in the thread of the synchronous
    caller, otherwise in asgiref's."""
    thread = _calling_thread.get()
    # A tool's thread inherits the variable, and may have an event loop of its own.
    if thread is None or not thread.is_running:
        return await sync_to_async(function)(*args, **kwargs)
    return await thread.call(partial(function, *args, **kwargs))


class CallingThread:
    """`run` coroutines from the thread that made it, then `close` it."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._context = copy_context()
        self._context.run(_calling_thread.set, self)
        self._jobs: deque[_Job] = deque()
        self._has_job = asyncio.Event()

    @property
    def is_running(self) -> bool:
        """Whether the caller's event loop is this one."""
        return asyncio.get_running_loop() is self._runner.get_loop()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the loop until `coroutine` has ended; outside a running event loop."""
        loop = self._runner.get_loop()
        task = loop.create_task(coroutine, context=self._context)
        try:
            while not task.done():
                self._runner.run(self._wait(task))
                self._has_job.clear()
                while self._jobs:
                    self._jobs.popleft().run()
        except BaseException:  # KeyboardInterrupt above all
            task.cancel()
            raise
        return task.result()

    def close(self) -> None:
        self._runner.close()

    async def call(self, function: Callable[[], T]) -> T:
        """Run `function` in the caller's thread while the loop stands still."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(function, future, copy_context()))
        self._has_job.set()
        return await future

    async def _wait(self, task: asyncio.Task[Any]) -> None:
        """Until `task` has ended or a job is to be run."""
        news = asyncio.ensure_future(self._has_job.wait())
        try:
            await asyncio.wait([task, news], return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()


class _Job:
    def __init__(
        self, function: Callable[[], Any], future: asyncio.Future[Any], context: Context
    ) -> None:
        self._function = function
        self._future = future
        self._context = context

    def run(self) -> None:
        if self._future.cancelled():
            return
        try:
            result = self._context.run(self._function)
        except Exception as exc:
            self._future.set_exception(exc)
        else:
            self._future.set_result(result)
