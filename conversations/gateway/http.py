"""One HTTP request over ASGI, and the ways to answer it: a body, or a stream of events.

A caller who hangs up is noticed at once, whatever the answer is waiting for: the task
that makes it is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qs

import orjson
from django.conf import settings

from conversations.sse import HEARTBEAT, Receive, Scope, Send
from llm.errors import BadRequest
from llm.wire import sse
from llm.wire.items import new_id
from llm.wire.mending import without_nul

PATIENCE = 1.0  # seconds an error may take to be told by its status
_ROUND = 0.5  # seconds from one look at all streams to the next
_JSON = (b"content-type", b"application/json")
_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_COMMENT = sse.comment("heartbeat")


class TooLarge(BadRequest):
    """The request is too large."""

    code, status = "E_TOO_LARGE", 413
    openai_code = "request_too_large"


class HungUp(Exception):
    """The caller has gone; nobody wants an answer."""


class Exchange:
    """A request, and whether and how it is answered."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.id = new_id("req")
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.peer: str = (scope.get("client") or [""])[0]  # "" of a Unix socket
        self.started = False
        self.told: dict[str, str] = {}  # more headers of the answer
        self._query: bytes = scope.get("query_string", b"")
        self.send = send
        self._receive = receive

    @property
    def query(self) -> dict[str, str]:
        """The first value of each name."""
        told = parse_qs(self._query.decode("latin-1"), keep_blank_values=True)
        return {name: values[0] for name, values in told.items()}

    async def body(self) -> bytes:
        """Raises TooLarge, HungUp."""
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        if int(self.headers.get(b"content-length") or 0) > limit:
            raise TooLarge(f"The request is too large; {limit} bytes are taken.")
        chunks, size, more = [], 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise HungUp
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > limit:
                raise TooLarge(f"The request is too large; {limit} bytes are taken.")
            more = message.get("more_body", False)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def json(self) -> dict[str, Any]:
        """The body's object; no body is an empty one. Raises BadRequest, HungUp."""
        if not (body := await self.body()):
            return {}
        try:
            told = orjson.loads(without_nul(body))
        except orjson.JSONDecodeError as exc:
            raise BadRequest(f"The body is not valid JSON: {exc}.") from exc
        if not isinstance(told, dict):
            raise BadRequest("The body must be a JSON object.")
        return told

    async def while_there(self, answering: Coroutine[Any, Any, None]) -> None:
        """Run `answering` until it ends or the caller hangs up."""
        task = asyncio.current_task()
        assert task is not None
        watch = asyncio.ensure_future(self._gone(task))
        try:
            await answering
        except asyncio.CancelledError:
            if not watch.done() or task.uncancel():
                raise  # the server ends this request
        finally:
            watch.cancel()

    async def _gone(self, task: asyncio.Task[Any]) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        task.cancel()

    async def answer(
        self, status: int, value: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        """`value` as JSON; None has no body."""
        body = b"" if value is None else orjson.dumps(value)
        told = [_JSON, (b"content-length", str(len(body)).encode())]
        self.told |= headers or {}
        await self._start(status, told)
        # `HEAD` is told what `GET` would be, and not sent it.
        body = b"" if self.method == "HEAD" else body
        await self.send({"type": "http.response.body", "body": body})

    async def start_stream(self) -> None:
        await self._start(200, list(_STREAM))

    async def write(self, body: bytes, *, last: bool = False) -> None:
        if body or last:
            await self.send(
                {"type": "http.response.body", "body": body, "more_body": not last}
            )

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.started = True
        headers.append((b"x-request-id", self.id.encode()))
        headers += [(n.encode(), _header(v)) for n, v in self.told.items()]
        await self.send(
            {"type": "http.response.start", "status": status, "headers": headers}
        )


def _header(value: str) -> bytes:
    """A name that a client has chosen may hold what no header can."""
    if value.isascii() and value.isprintable():
        return value.encode()
    return repr(value)[1:-1].encode("ascii", "backslashreplace")


class EventStream:
    """The events of an answer on their way to the caller.

    It begins with the first `write`, or after `PATIENCE` with a comment and what is
    `held`; until then an error can still be told by its status. Whenever nothing is
    said for a while a comment is, so that no proxy takes silence for death.
    """

    __slots__ = ("_beating", "_exchange", "_held", "_loop", "_said_at", "_silences")

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._held = b""
        self._loop = asyncio.get_running_loop()
        self._said_at = self._loop.time()
        self._beating: asyncio.Task[None] | None = None
        self._silences = _Silences.of(self._loop)
        self._silences.streams.add(self)

    @property
    def begun(self) -> bool:
        return self._exchange.started

    def hold(self, body: bytes) -> None:
        """To be sent with what comes next, or before the first comment."""
        self._held += body

    def write(self, body: bytes) -> Awaitable[None]:
        exchange = self._exchange
        if not body or self._beating or self._held or not exchange.started:
            return self._write(body)
        # Nearly all there is: no coroutine but the server's.
        self._said_at = self._loop.time()
        return exchange.send(
            {"type": "http.response.body", "body": body, "more_body": True}
        )

    async def _write(self, body: bytes) -> None:
        if self._beating is not None:
            await self._beating
        if body:
            await self._put(body)

    async def end(self, body: bytes) -> None:
        """The last of it."""
        self.stop()
        if self._beating is not None:
            await self._beating
        await self._put(body, last=True)

    def stop(self) -> None:
        """No comments any more."""
        self._silences.streams.discard(self)

    async def _put(self, body: bytes, *, last: bool = False) -> None:
        if self._held:
            body, self._held = self._held + body, b""
        self._said_at = self._loop.time()
        if not self._exchange.started:
            await self._exchange.start_stream()
        await self._exchange.write(body, last=last)

    def look(self, now: float) -> None:
        """Whether it has been silent for too long."""
        patience = HEARTBEAT if self._exchange.started else PATIENCE
        if now - self._said_at >= patience and self._beating is None:
            self._beating = asyncio.ensure_future(self._beat())

    async def _beat(self) -> None:
        await self._put(_COMMENT)
        self._beating = None


class _Silences:
    """The open streams of an event loop, with one timer for all: one each took half a
    kilobyte, and longer to set than all streams take to be looked at."""

    _of: ClassVar[dict[asyncio.AbstractEventLoop, _Silences]] = {}

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.streams: set[EventStream] = set()
        self._loop = loop
        self._loop.call_later(_ROUND, self._look)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> _Silences:
        if (known := cls._of.get(loop)) is None:
            for ended in [other for other in cls._of if other.is_closed()]:
                del cls._of[ended]
            known = cls._of[loop] = cls(loop)
        return known

    def _look(self) -> None:
        if not self.streams:
            del self._of[self._loop]
            return
        self._loop.call_later(_ROUND, self._look)
        now = self._loop.time()
        for stream in self.streams:
            stream.look(now)
