"""Bounds for the processes of isolated tools that wait for a form's answer.

Such a process has given its slot back to others but still takes memory. Forms that
nobody fills in would collect processes until the memory is used up.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from weakref import WeakKeyDictionary

from tools.errors import ToolError

MAX_WAITING = 16  # processes for each event loop
MAX_WAITING_OF_USER = 4  # so that one user's do not use up all
ANSWER_TIMEOUT = 3600.0  # seconds

_waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, Counter[int | None]] = (
    WeakKeyDictionary()
)
T = TypeVar("T")


@contextmanager
def count_waiting(user_id: int | None) -> Iterator[None]:
    """Count one more process that waits while this is open. Raises ToolError if too
    many wait already."""
    waiting = _waiting.setdefault(asyncio.get_running_loop(), Counter())
    if waiting[user_id] >= MAX_WAITING_OF_USER:
        raise ToolError(
            "it cannot show its form, because at most"
            f" {MAX_WAITING_OF_USER} forms of one user's isolated tools may be open at"
            " once; the user must answer one of them first."
        )
    if waiting.total() >= MAX_WAITING:
        raise ToolError(
            "it cannot show its form, because too many forms of tools are open; try"
            " again later."
        )
    waiting[user_id] += 1
    try:
        yield
    finally:
        waiting[user_id] -= 1
        if not waiting[user_id]:
            del waiting[user_id]


async def answer_in_time(answer: Awaitable[T]) -> T:
    """Raises ToolError if no answer comes within ANSWER_TIMEOUT."""
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT) as limit:
            return await answer
    except TimeoutError as exc:
        if not limit.expired():
            raise
        raise ToolError(
            f"nobody filled in its form within {ANSWER_TIMEOUT / 60:g} minutes; call it"
            " again when the user is there."
        ) from exc
