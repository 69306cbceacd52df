"""Threads on which the engine waits for a storage of files that is not on this machine.

They are no threads of the database, where other turns would wait behind them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from django.db import connections

from tools.execute import format_trace

logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8  # which start when they are needed
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="parley-files")


def run_on_file_thread(
    function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> asyncio.Future[T]:
    """Call the function on a thread. If the caller is cancelled, a call that has begun
    runs to its end."""

    def call() -> T:
        try:
            return function(*args, **kwargs)
        finally:
            connections.close_all()  # few calls open one

    return asyncio.wrap_future(_threads.submit(copy_context().run, call))


def begin_on_file_thread(
    function: Callable[P, object], *args: P.args, **kwargs: P.kwargs
) -> None:
    """Call the function on a thread, without waiting for it. The process ends after
    the call, even if its event loop has ended before."""

    def call() -> None:
        try:
            function(*args, **kwargs)
        except Exception as exc:
            logger.error("%s failed: %s", function.__name__, format_trace(exc))
        finally:
            connections.close_all()

    _threads.submit(copy_context().run, call)
