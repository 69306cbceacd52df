"""Subscriptions of one WebSocket: each forwards a turn's events in its own task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import orjson

from conversations import engine
from conversations.engine import DirectSink, Entry, Write

_CHUNK_SIZE = 50  # entries


class TurnSubscriptions:
    """`write` writes past ASGI, if the server supports it."""

    __slots__ = ("_send", "_tasks", "_write")

    def __init__(
        self, send: Callable[[Any], Awaitable[None]], write: Write | None
    ) -> None:
        self._send = send
        self._write = write
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by turn

    def __contains__(self, turn_id: str) -> bool:
        return turn_id in self._tasks

    def start(self, turn_id: str, after: str | None) -> None:
        """Subscribe to a turn, instead of an earlier subscription to it."""
        if task := self._tasks.pop(turn_id, None):
            task.cancel()
        self._tasks[turn_id] = asyncio.ensure_future(self.forward(turn_id, after))

    async def end_all(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def forward(self, turn_id: str, after: str | None) -> None:
        """Send the turn's events until it ends or the socket is closed."""
        # While the server shuts down this ends early; the server closes with 1012.
        sink = DirectSink(Entry.ws_frame, self._write) if self._write else None
        try:
            batches = engine.subscribe(turn_id, after, sink)
        except engine.NotRunning:  # the server shuts down and closes with 1012
            return
        try:
            async for entries in batches:
                await self._send_entries(entries, sink)
                del entries  # the next batch may take long; free this one
        except engine.TurnDeleted:
            with suppress(OSError):
                await self._send_text(_deletion_notice(turn_id))
        except OSError:
            pass  # the socket is closed already
        finally:
            if self._tasks.get(turn_id) is asyncio.current_task():
                del self._tasks[turn_id]
            await batches.aclose()

    async def _send_entries(
        self, entries: list[Entry], sink: DirectSink | None
    ) -> None:
        for chunk in _chunks(entries):
            if sink and sink.write_entries(chunk):
                continue
            for entry in chunk:
                await self._send_text(entry.ws)

    async def _send_text(self, text: str) -> None:
        """Raises OSError where the socket is closed or closing."""
        try:
            await self._send({"type": "websocket.send", "text": text})
        except RuntimeError as exc:  # uvicorn, after the client's close frame
            raise ConnectionAbortedError from exc


def _deletion_notice(turn_id: str) -> str:
    error = {"message": engine.TurnDeleted.__doc__, "code": "not_found"}
    error |= {"type": "invalid_request_error", "param": "turn"}
    notice = {"type": "error", "turn": turn_id, "error": error}
    return orjson.dumps(notice).decode()


def _chunks(entries: list[Entry]) -> Iterator[list[Entry]]:
    """Chunks of some kilobytes, so that a long answer is not in memory twice."""
    for first in range(0, len(entries), _CHUNK_SIZE):
        yield entries[first : first + _CHUNK_SIZE]
