"""`Channel`: requests and notices in both directions between two processes.

A message is a line of JSON: a number, a kind and values. The number of a notice is 0;
an answer has the negative number of its request, and its kind or `FAILED`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Any

import orjson

Handlers = Mapping[str, Callable[..., Any]]

MAX_LINE = 2**24  # bytes
PATIENCE = 5.0  # seconds for an answer
RETRY_PAUSE = 1.0  # seconds without requests after one that got no answer
FAILED = "failed"

logger = logging.getLogger(__name__)


class Channel:
    """For one event loop, on which it also calls the handlers."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        handlers: Handlers,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handlers = handlers
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._is_closed = False
        self._silent_until = 0.0  # in the event loop's time

    @classmethod
    async def open(cls, connection: socket.socket, handlers: Handlers) -> Channel:
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection, limit=MAX_LINE)
        return cls(reader, writer, handlers)

    def notify(self, kind: str, *values: Any) -> None:
        self._write(0, kind, values)

    async def ask(self, kind: str, *values: Any) -> Any:
        """The other handler's result. Raises ConnectionError, TimeoutError: of requests
        one after another, one waits for a process that is stalled."""
        if self._is_closed:
            raise ConnectionError("the other process has ended")
        loop = asyncio.get_running_loop()
        if loop.time() < self._silent_until:
            raise TimeoutError
        number = next(self._numbers)
        answer = loop.create_future()
        self._waiting[number] = answer
        try:
            self._write(number, kind, values)
            async with asyncio.timeout(PATIENCE):
                return await answer
        except TimeoutError:
            self._silent_until = loop.time() + RETRY_PAUSE
            raise
        finally:
            del self._waiting[number]

    async def run(self) -> None:
        """Receive messages until the other process closes the connection."""
        try:
            # A process that was killed leaves a part of a line, or nothing.
            while (line := await self._reader.readline()).endswith(b"\n"):
                self._receive(*orjson.loads(line))
        except ConnectionError:
            pass  # it was killed
        finally:
            self._is_closed = True
            self._writer.close()
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(ConnectionError("the other process has ended"))

    def _receive(self, number: int, kind: str, values: list[Any]) -> None:
        if number < 0:
            answer = self._waiting.get(-number)
            if answer is not None and not answer.done():
                _settle(answer, kind, values)
            return
        try:
            result = self._handlers[kind](*values)
            if number:
                self._write(-number, kind, result)
        except Exception:  # the channel serves other requests
            logger.exception("request %r of the other process failed", kind)
            if number:
                self._write(-number, FAILED, None)

    def _write(self, number: int, kind: str, values: Any) -> None:
        if not self._is_closed:
            self._writer.write(orjson.dumps([number, kind, values]) + b"\n")


def _settle(answer: asyncio.Future[Any], kind: str, values: Any) -> None:
    if kind == FAILED:
        answer.set_exception(ConnectionError("the request failed there"))
    else:
        answer.set_result(values)
