"""The engine starts with the server and drains with it, whichever server it is.

Daphne is ours, and calls `start`, `drain` and `close`; others speak ASGI's lifespan.
Those wait for open streams before they say that they go down, and the streams wait to
be told; so we listen to the signal as well.
"""

from __future__ import annotations

import asyncio
import signal
import sys
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
from project.accepting import Door
from project.files import InUse, allow_many_open, lock_folder
from project.watchdog import Watchdog
from tools.mcp import client as mcp

_UVICORNS_SOCKET = "uvicorn.protocols.websockets.websockets_sansio_impl"

_watchdogs: dict[asyncio.AbstractEventLoop, Watchdog] = {}

Message = MutableMapping[str, Any]


async def start() -> None:
    memory.share_heap()
    allow_many_open()
    # Scaled, turns are the business of `manage.py worker`.
    await engine.start(works=not settings.REDIS_URL)
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, memory.settle)
    _watchdogs[loop] = Watchdog(loop)


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
        if _UVICORNS_SOCKET in sys.modules:
            from project.small_socket import answer_bad_handshakes

            answer_bad_handshakes()
        door = Door(asyncio.get_running_loop())
        draining = _drain_on_signal(door)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        draining.set()
        door.close()
        await drain()
        await close()
        await send({"type": "lifespan.shutdown.complete"})


def _drain_on_signal(door: Door) -> asyncio.Event:
    """Begin to drain at SIGTERM or Ctrl-C, before the server does what it does then."""
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    def begin() -> None:
        if not begun.is_set():
            begun.set()
            door.close()
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
