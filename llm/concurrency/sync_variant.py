"""Synchronous variants of the library's functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import async_to_sync

from llm.concurrency.thread_lending import lend_thread
from llm.http import client

T = TypeVar("T")
P = ParamSpec("P")


def make_sync(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Wrap `function` for code that cannot await. Do not call it in an event loop."""

    async def run_alone(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        finally:
            await client.aclose()  # this event loop ends here and nothing else uses it

    @functools.wraps(function)
    def sync_function(*args: P.args, **kwargs: P.kwargs) -> T:
        # In a new event loop, because closing the connections of a shared one would end
        # the requests of other code.
        with lend_thread():
            return async_to_sync(run_alone, force_new_loop=True)(*args, **kwargs)

    sync_function.__name__ = f"{function.__name__}_sync"
    sync_function.__doc__ = f"`{function.__name__}` for code that cannot await."
    return sync_function
