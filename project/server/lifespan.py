"""Start-up and drain of the engine under each server.

`manage.py serve` and `manage.py runserver` call `start`, `drain` and `close`. Other
servers use ASGI lifespan. They wait for open streams before they send
`lifespan.shutdown`, but the streams end only when the engine drains; so the lifespan
starts to drain at the signal. The command `daphne` does not support lifespan: the first
request starts the engine.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack
from types import FrameType
from typing import Any

from django.conf import settings
from django.db import DatabaseError

from conversations import engine
from conversations.gateway import loop_resources as gateway
from llm.http import client
from project.monitoring import trace_export
from project.server.watchdog import Watchdog
from project.startup import memory
from project.startup.data_folder import InUse, lock_folder, raise_open_file_limit
from tools.mcp import client as mcp

logger = logging.getLogger(__name__)

_watchdogs: dict[asyncio.AbstractEventLoop, Watchdog] = {}

Message = MutableMapping[str, Any]

_has_started = False
_start_lock = asyncio.Lock()
_data_folder_lock = ExitStack()  # of a start on demand


def is_started() -> bool:
    """Return True from the first start on, also after `close`."""
    return _has_started


async def start_on_demand() -> None:
    """Lock the data folder and start the engine, once; concurrent callers wait for the
    same start. Raises InUse."""
    async with _start_lock:
        if is_started():
            return
        with ExitStack() as lock:
            if not settings.IS_SCALED:
                lock.enter_context(lock_folder(settings.DATA))
            await start()
            _data_folder_lock.push(lock.pop_all())


async def start(*, is_gateway: bool = False) -> None:
    """`is_gateway`: beside the process that runs turns in the embedded delivery."""
    global _has_started
    memory.configure_malloc()
    trace_export.start()
    raise_open_file_limit()
    # In the scaled delivery `manage.py worker` runs the turns.
    await engine.start(is_worker=not (settings.IS_SCALED or is_gateway))
    loop = asyncio.get_running_loop()
    loop.run_in_executor(None, memory.freeze_startup_objects)
    _watchdogs[loop] = Watchdog(loop)
    _has_started = True


drain = engine.drain


def reason(exc: Exception) -> str:
    """Why the engine does not start, in one line."""
    if isinstance(exc, DatabaseError):
        text = str(exc).partition("\n")[0]
        command = f"{settings.LOCATIONS.command} migrate"
        return f"The database cannot be used ({text}); run `{command}`."
    return f"{exc}."


async def close() -> None:
    if watchdog := _watchdogs.pop(asyncio.get_running_loop(), None):
        watchdog.close()
    await mcp.close_all()
    await gateway.close()
    await client.aclose()
    await trace_export.close()


async def lifespan(
    scope: Any,
    receive: Callable[[], Awaitable[Message]],
    send: Callable[[Message], Awaitable[None]],
) -> None:
    """ASGI lifespan. In the embedded delivery it locks the data folder, as `serve`."""
    await receive()
    with ExitStack() as lock:
        try:
            if not settings.IS_SCALED:
                lock.enter_context(lock_folder(settings.DATA))
            await start()
        except (InUse, DatabaseError) as exc:
            await send({"type": "lifespan.startup.failed", "message": reason(exc)})
            return
        except Exception as exc:  # else uvicorn would serve without an engine
            logger.exception("the engine does not start")
            message = f"The engine does not start ({type(exc).__name__})."
            await send({"type": "lifespan.startup.failed", "message": message})
            return
        draining = _drain_on_signal()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        draining.set()
        await drain()
        await close()
        await send({"type": "lifespan.shutdown.complete"})


def _drain_on_signal() -> asyncio.Event:
    """Start to drain at SIGTERM or SIGINT, before the server's own signal handler."""
    loop, draining = asyncio.get_running_loop(), asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    def start_drain() -> None:
        if not draining.is_set():
            draining.set()
            task = loop.create_task(drain())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            _prepend_handler(number, lambda: loop.call_soon_threadsafe(start_drain))
    return draining


def _prepend_handler(number: signal.Signals, act: Callable[[], object]) -> None:
    """Call `act` at the signal, then the handler that was installed before."""
    previous = signal.getsignal(number)

    def handle(received: int, frame: FrameType | None) -> None:
        act()
        if callable(previous):
            previous(received, frame)

    signal.signal(number, handle)
