"""Start-up and drain of the engine, by whichever server.

`manage.py serve` and `manage.py runserver` call `start`, `drain` and `close`; other
servers speak ASGI's lifespan. Those wait for open streams before they announce the
shutdown, and the streams end only with the drain; so the lifespan begins to drain at
the signal as well. Bare Daphne knows no lifespan: the first request starts the engine.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack
from types import FrameType
from typing import Any

from django.conf import settings

from conversations import engine
from conversations.gateway import means as gateway
from llm import client
from project import memory
from project.files import InUse, allow_many_open, lock_folder
from project.watchdog import Watchdog
from tools.mcp import client as mcp

_watchdogs: dict[asyncio.AbstractEventLoop, Watchdog] = {}

Message = MutableMapping[str, Any]

_has_started = False
_start_lock = asyncio.Lock()
_held = ExitStack()  # the lock on the data folder, after a start on demand


def is_started() -> bool:
    """Also true after the engine was closed."""
    return _has_started


async def start_on_demand() -> None:
    """Start the engine once, with the lock on the data folder; callers at the same time
    wait for the same start. Raises InUse."""
    async with _start_lock:
        if is_started():
            return
        with ExitStack() as held:
            if not settings.REDIS_URL:
                held.enter_context(lock_folder(settings.DATA))
            await start()
            _held.push(held.pop_all())


async def start() -> None:
    global _has_started
    memory.share_heap()
    allow_many_open()
    # Scaled, turns are the business of `manage.py worker`.
    await engine.start(works=not settings.REDIS_URL)
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, memory.settle)
    _watchdogs[loop] = Watchdog(loop)
    _has_started = True


drain = engine.drain


async def close() -> None:
    if watchdog := _watchdogs.pop(asyncio.get_running_loop(), None):
        watchdog.close()
    await mcp.close_all()
    await gateway.close()
    await client.aclose()


async def lifespan(
    scope: Any,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """ASGI. Embedded, it holds the lock on the data folder, as `serve` does."""
    await receive()
    with ExitStack() as held:
        try:
            if not settings.REDIS_URL:
                held.enter_context(lock_folder(settings.DATA))
            await start()
        except InUse as exc:
            await send({"type": "lifespan.startup.failed", "message": f"{exc}."})
            return
        draining = _drain_on_signal()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        draining.set()
        await drain()
        await close()
        await send({"type": "lifespan.shutdown.complete"})


def _drain_on_signal() -> asyncio.Event:
    """Begin to drain at SIGTERM or Ctrl-C, before the server does what it does then."""
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    def begin() -> None:
        if not begun.is_set():
            begun.set()
            task = loop.create_task(drain())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            _before(number, lambda: loop.call_soon_threadsafe(begin))
    return begun


def _before(number: signal.Signals, act: Callable[[], object]) -> None:
    """Do this at the signal, then what is done already."""
    known = signal.getsignal(number)

    def both(received: int, frame: FrameType | None) -> None:
        act()
        if callable(known):
            known(received, frame)

    signal.signal(number, both)
