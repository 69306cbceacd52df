"""Work whose time grows with what a stranger sent, away from the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

LARGE = 256 * 1024  # bytes; a thread costs as much as looking at a few thousand

P = ParamSpec("P")
T = TypeVar("T")


async def run_off_loop(
    size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """`function(...)`, in a thread where `size`, the bytes it has to read, is large."""
    if size <= LARGE:
        return function(*args, **kwargs)
    return await asyncio.to_thread(function, *args, **kwargs)
