"""Runs work whose duration depends on the size of its input off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

LARGE = 256 * 1024  # bytes; reading a few thousand costs as much as a thread

P = ParamSpec("P")
T = TypeVar("T")


async def run_off_loop(
    size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call `function`, in a thread if its input of `size` bytes is large."""
    if size <= LARGE:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
