"""Database access for asynchronous code that has no executor of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import close_old_connections

from llm.concurrency.calling_thread import run_with_orm

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_database_thread(
    function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run `function` as `run_with_orm` does: the connection stays open for the next
    call."""

    def call() -> T:
        close_old_connections()
        return function(*args, **kwargs)

    return await run_with_orm(call)
