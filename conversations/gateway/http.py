"""One HTTP request over ASGI, answered with a body or with a stream of events.

When the client disconnects, the task that produces the answer is cancelled at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, ClassVar
from urllib.parse import parse_qs

import orjson
from django.conf import settings

from conversations.request_body import TooLong, read_pieces
from conversations.sse import HEARTBEAT, Receive, Scope, Send
from conversations.token_errors import Unauthorized
from conversations.unpacking import (
    ACCEPTED,
    Damaged,
    UnknownEncoding,
    UnpackedTooLong,
)
from llm.errors import BadRequest
from llm.off_loop import run_off_loop
from llm.wire import bounded_json, sse
from llm.wire.items import new_id
from llm.wire.mending import without_nul

#: Seconds that a stream waits for an error before it starts with status 200: a host or
#: machine under load takes more than one second to refuse a request.
PATIENCE = 4.0
RETRIES = 6.0  # additional seconds while a failed request is retried

_ROUND = 0.5  # seconds between two checks of all streams
_NOSNIFF = (b"x-content-type-options", b"nosniff")
_JSON = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    _NOSNIFF,
)
_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    _NOSNIFF,
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_COMMENT = sse.comment("heartbeat")


class TooLarge(BadRequest):
    """The request is too large."""

    code, status = "E_TOO_LARGE", 413
    openai_code = "request_too_large"


class UnknownPacking(BadRequest):
    """The request's body is packed in a way that is not known here."""

    code, status = "E_UNSUPPORTED_MEDIA_TYPE", 415
    openai_code = "unsupported_content_encoding"


class Revoked(Unauthorized):
    """The access token was revoked, or its user may not sign in any more."""


class Exchange:
    """An HTTP request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.id = new_id("req")
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.peer: str = (scope.get("client") or [""])[0]  # "" for a Unix socket
        self.started = False
        self._answering: asyncio.Task[Any] | None = None
        self._is_revoked = False
        self.told: dict[str, str] = {}  # sent with the answer
        self._query: bytes = scope.get("query_string", b"")
        self.send = send
        self._receive = receive

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters, with the first value of each name."""
        told = parse_qs(self._query.decode("latin-1"), keep_blank_values=True)
        return {name: values[0] for name, values in told.items()}

    async def body(self) -> bytes:
        """The body, decompressed if necessary. Raises BadRequest, HungUp."""
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        try:
            async with aclosing(
                read_pieces(self.headers, self._receive, limit)
            ) as pieces:
                chunks = [piece async for piece in pieces]
        except TooLong as exc:
            text = f"The request is too large; the limit is {limit} bytes."
            raise TooLarge(text) from exc
        except UnpackedTooLong as exc:
            limit = settings.MAX_INPUT_SIZE
            raise TooLarge(
                f"The request is too large; the limit is {limit} bytes after"
                " decompression."
            ) from exc
        except UnknownEncoding as exc:
            self.told["accept-encoding"] = ACCEPTED
            raise UnknownPacking(
                f"The content encoding {str(exc)!r} is not supported; use {ACCEPTED}."
            ) from exc
        except Damaged as exc:
            raise BadRequest(f"The {exc} body is truncated or damaged.") from exc
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def json(self) -> dict[str, Any]:
        """The body's JSON object; {} for an empty body. Raises BadRequest, HungUp."""
        if not (body := await self.body()):
            return {}
        try:
            told = await run_off_loop(len(body), _parsed, body)
        except bounded_json.TooManyValues as exc:
            raise TooLarge(f"The request is too large: {exc.msg}.") from exc
        except orjson.JSONDecodeError as exc:
            raise BadRequest(f"The body is not valid JSON: {exc}.") from exc
        if not isinstance(told, dict):
            raise BadRequest("The body must be a JSON object.")
        return told

    async def while_there(self, answering: Coroutine[Any, Any, None]) -> None:
        """Await `handling` until it ends or the client disconnects.

        Raises TokenRevoked.
        """
        task = self._answering = asyncio.current_task()
        assert task is not None
        watch = asyncio.ensure_future(self._gone())
        try:
            await answering
        except asyncio.CancelledError:
            if not (watch.done() or self._is_revoked) or task.uncancel():
                raise  # the server ends this request
            if self._is_revoked:
                raise Revoked from None
        finally:
            self._answering = None
            watch.cancel()

    def revoke(self) -> None:
        """Cancel the answer because the token is no longer valid."""
        if self._answering is not None and not self._is_revoked:
            self._is_revoked = True
            self._answering.cancel()

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._answering is not None and not self._is_revoked:
            self._answering.cancel()

    async def answer(
        self, status: int, value: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send `value` as JSON; None sends an empty body."""
        body = b"" if value is None else orjson.dumps(value)
        told = [*_JSON, (b"content-length", str(len(body)).encode())]
        self.told |= headers or {}
        await self._start(status, told)
        # `HEAD` gets the headers of `GET` without its body.
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


def _parsed(body: bytes) -> Any:
    return bounded_json.loads(without_nul(body))


def _header(value: str) -> bytes:
    """Escape characters that headers cannot hold: clients choose some of the names."""
    if value.isascii() and value.isprintable():
        return value.encode()
    return repr(value)[1:-1].encode("ascii", "backslashreplace")


def queue_patience() -> float:
    """`STATUS_WAIT` for a request that may still wait for a key or a connection."""
    return PATIENCE + settings.LLM_KEY_WAIT + settings.LLM_CONNECTION_WAIT


class EventStream:
    """An answer's stream of Server-Sent Events, with heartbeats.

    The response starts with the first `write`. After `status_wait()` seconds without
    one it starts with a comment and what `buffer` collected. Until then an error can
    still be sent with its own status. While nothing is written, comments keep proxies
    from closing the connection.
    """

    __slots__ = (
        "_beating",
        "_exchange",
        "_held",
        "_loop",
        "_patience",
        "_said_at",
        "_silences",
    )

    def __init__(
        self, exchange: Exchange, patience: Callable[[], float] = lambda: PATIENCE
    ) -> None:
        self._exchange = exchange
        self._patience = patience
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
        """Hold `body` back; the next write or the first comment sends it."""
        self._held += body

    def write(self, body: bytes) -> Awaitable[None]:
        exchange = self._exchange
        if not body or self._beating or self._held or not exchange.started:
            return self._write(body)
        # The most frequent case: it needs no coroutine beside the server's.
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
        """Send the last bytes and end the response."""
        self.stop()
        if self._beating is not None:
            await self._beating
        await self._put(body, last=True)

    def stop(self) -> None:
        """Send no more heartbeats."""
        self._silences.streams.discard(self)

    async def _put(self, body: bytes, *, last: bool = False) -> None:
        if self._held:
            body, self._held = self._held + body, b""
        self._said_at = self._loop.time()
        if not self._exchange.started:
            await self._exchange.start_stream()
        await self._exchange.write(body, last=last)

    def look(self, now: float) -> None:
        """Send a heartbeat if nothing was written for too long."""
        patience = HEARTBEAT if self._exchange.started else self._patience()
        if now - self._said_at >= patience and self._beating is None:
            self._beating = asyncio.ensure_future(self._beat())

    async def _beat(self) -> None:
        await self._put(_COMMENT)
        self._beating = None


class _Silences:
    """One timer for all open streams of an event loop.

    A timer for each stream takes half a kilobyte, and setting it takes longer than
    checking all streams.
    """

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
