"""Threads on which the engine waits for a storage of files that is not on this machine.

They are no threads of the database, where other turns would wait behind them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from django.db import connections

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 8  # which start when they are needed
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="parley-files")


def run_on_file_thread(
    function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> asyncio.Future[T]:
    """Runs even if the caller is cancelled, unless it has not begun."""

    def call() -> T:
        try:
            return function(*args, **kwargs)
        finally:
            connections.close_all()  # few calls open one: those that fail

    return asyncio.wrap_future(_threads.submit(copy_context().run, call))
