"""The event loop of `serve` and `worker`: uvloop's where it is installed."""

from __future__ import annotations

import asyncio
import sys


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # no wheel for some platforms
        return asyncio.new_event_loop()
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
