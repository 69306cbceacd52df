"""One HTTP request over ASGI, answered with a body or with a stream of events.

When the client disconnects, the task that produces the answer is cancelled at once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qs

import orjson
from django.conf import settings

from conversations.access.errors import Unauthorized
from conversations.gateway.errors import ShuttingDown
from conversations.http.decompression import (
    ACCEPTED,
    CorruptBody,
    UnknownEncoding,
    UnpackedTooLong,
)
from conversations.http.request_body import BodyTooLong, read_pieces
from conversations.http.sse import HEARTBEAT, Receive, Scope, Send
from llm.concurrency.per_loop import PerLoop
from llm.errors import BadRequest
from llm.telemetry import log_context
from llm.wire import bounded_json, sse
from llm.wire.items import new_id
from llm.wire.sanitize import NUL, replace_nul

#: Seconds that a stream waits for an error before it starts with status 200: a host or
#: machine under load takes more than one second to refuse a request.
STATUS_WAIT = 4.0
RETRY_WAIT = 6.0  # additional seconds while a failed request is retried

_CHECK_INTERVAL = 0.5  # seconds between two checks of all streams
_SAFE = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_JSON = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    *_SAFE,
)
_STREAM = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    *_SAFE,
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)
_HEARTBEAT_COMMENT = sse.comment("heartbeat")
_LISTS = frozenset({b"anthropic-beta", b"openai-beta", b"x-parley-tags"})


class RequestTooLarge(BadRequest):
    """The request is too large."""

    code, status = "E_TOO_LARGE", 413
    openai_code = "request_too_large"


class UnsupportedEncoding(BadRequest):
    """The request's body is packed in a way that is not known here."""

    code, status = "E_UNSUPPORTED_MEDIA_TYPE", 415
    openai_code = "unsupported_content_encoding"


class TokenRevoked(Unauthorized):
    """The access token was revoked, or its user may not sign in any more."""


class Exchange:
    """An HTTP request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.id = log_context.request_id.get() or new_id("req")
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        if len(self.headers) < len(scope["headers"]):
            self.headers |= _join_lists(scope["headers"])
        self.peer: str = (scope.get("client") or [""])[0]  # "" for a Unix socket
        self.started = False
        self.has_failed = False  # although the status is 200: reported in the answer
        self._answering: asyncio.Task[Any] | None = None
        self._is_revoked = False
        self.response_headers: dict[str, str] = {}  # sent with the answer
        self.body_size = 0  # bytes, decompressed
        self.log: Any = None  # a `RequestLog` if the token's log is switched on
        self.origin = self.headers.get(b"origin")  # of a page in a browser
        self.copied_size = 0  # bytes of the body that a log keeps
        self.copied_body = b""
        self._query: bytes = scope.get("query_string", b"")
        self.send = send
        self._receive = receive

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters, with the first value of each name."""
        parsed = parse_qs(self._query.decode("latin-1"), keep_blank_values=True)
        return {name: values[0] for name, values in parsed.items()}

    async def body(self) -> bytes:
        """The body, decompressed if necessary.

        Raises BadRequest, ClientDisconnected.
        """
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        try:
            async with aclosing(
                read_pieces(self.headers, self._receive, limit)
            ) as pieces:
                chunks = [piece async for piece in pieces]
        except BodyTooLong as exc:
            text = f"The request is too large; the limit is {limit} bytes."
            raise RequestTooLarge(text) from exc
        except UnpackedTooLong as exc:
            limit = settings.MAX_INPUT_SIZE
            raise RequestTooLarge(
                f"The request is too large; the limit is {limit} bytes after"
                " decompression."
            ) from exc
        except UnknownEncoding as exc:
            self.response_headers["accept-encoding"] = ACCEPTED
            raise UnsupportedEncoding(
                f"The content encoding {str(exc)!r} is not supported; use {ACCEPTED}."
            ) from exc
        except CorruptBody as exc:
            raise BadRequest(f"The {exc} body is truncated or damaged.") from exc
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def json(self) -> dict[str, Any]:
        """The body's JSON object; {} for an empty body.

        Raises BadRequest, ClientDisconnected.
        """
        if not (body := await self.body()):
            return {}
        self.body_size = len(body)
        if self.copied_size:
            self.copied_body = body[: self.copied_size]
        try:
            if len(body) <= bounded_json.MAX_VALUES and NUL not in body:
                value = orjson.loads(body)
            else:
                value = await asyncio.to_thread(_parse, body)
        except bounded_json.TooManyValues as exc:
            raise RequestTooLarge(f"The request is too large: {exc.msg}.") from exc
        except orjson.JSONDecodeError as exc:
            raise BadRequest(f"The body is not valid JSON: {exc}.") from exc
        if not isinstance(value, dict):
            raise BadRequest("The body must be a JSON object.")
        return value

    async def run_while_connected(self, handling: Coroutine[Any, Any, None]) -> None:
        """Await `handling` until it ends or the client disconnects.

        Raises TokenRevoked, ShuttingDown.
        """
        task = self._answering = asyncio.current_task()
        assert task is not None
        watch = asyncio.ensure_future(self._wait_for_disconnect())
        try:
            await handling
        except asyncio.CancelledError:
            if not (watch.done() or self._is_revoked):
                if self.started:
                    raise  # the server ends this request: its stream breaks off
                task.uncancel()
                raise ShuttingDown from None  # clients send the request again
            if task.uncancel():
                raise  # the server ends it as well
            if self._is_revoked:
                raise TokenRevoked from None
        finally:
            self._answering = None
            watch.cancel()

    def revoke(self) -> None:
        """Cancel the answer because the token is no longer valid."""
        if self._answering is not None and not self._is_revoked:
            self._is_revoked = True
            self._answering.cancel()

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._answering is not None and not self._is_revoked:
            self._answering.cancel()

    async def answer(
        self, status: int, value: Any, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send `value` as JSON; None sends an empty body."""
        await self.answer_bytes(
            status, b"" if value is None else orjson.dumps(value), headers
        )

    async def answer_bytes(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send `body`, which is JSON or empty."""
        start_headers = [*_JSON, (b"content-length", str(len(body)).encode())]
        self.response_headers |= headers or {}
        await self._start(status, start_headers)
        # `HEAD` gets the headers of `GET` without its body.
        body = b"" if self.method == "HEAD" else body
        await self.send({"type": "http.response.body", "body": body})

    async def repeat(
        self, status: int, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> None:
        """Send an answer that was sent before, as it was, with this request's id."""
        await self._start(status, headers)
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
        headers += [
            (n.encode(), _encode_header(v)) for n, v in self.response_headers.items()
        ]
        await self.send(
            {"type": "http.response.start", "status": status, "headers": headers}
        )


def _join_lists(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers that may be sent in several lines, each as one: SDKs send a line for
    each beta feature."""
    lines = defaultdict[bytes, list[bytes]](list)
    for name, value in headers:
        if name in _LISTS:
            lines[name].append(value)
    return {name: b", ".join(values) for name, values in lines.items()}


def _parse(body: bytes) -> Any:
    return bounded_json.loads(replace_nul(body))


def _encode_header(value: str) -> bytes:
    """Escape characters that headers cannot hold: clients choose some of the names."""
    if value.isascii() and value.isprintable():
        return value.encode()
    return repr(value)[1:-1].encode("ascii", "backslashreplace")


def queued_status_wait() -> float:
    """`STATUS_WAIT` for a request that may still wait for a key or a connection."""
    return STATUS_WAIT + settings.LLM_KEY_WAIT + settings.LLM_CONNECTION_WAIT


class EventStream:
    """An answer's stream of Server-Sent Events, with heartbeats.

    The response starts with the first `write`. After `status_wait()` seconds without
    one it starts with a comment and what `buffer` collected. Until then an error can
    still be sent with its own status. While nothing is written, comments keep proxies
    from closing the connection. Buffered events are encoded when they are sent: until
    then the provider is called.
    """

    __slots__ = (
        "_buffered",
        "_encode",
        "_events",
        "_headers",
        "_loop",
        "_status_wait",
        "exchange",
        "heartbeat",
        "timer",
        "written_at",
    )

    def __init__(
        self,
        exchange: Exchange,
        encode: Callable[[Sequence[Any]], bytes],
        status_wait: Callable[[], float] = lambda: STATUS_WAIT,
        headers: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`encode` gets all events in order, as they were written; `headers()` are
        added when the response starts."""
        self.exchange = exchange
        self._encode = encode
        self._headers = headers
        self._status_wait = status_wait
        self._events: list[Any] = []  # buffered
        self._buffered = b""  # buffered events that are encoded already
        self._loop = asyncio.get_running_loop()
        self.written_at = self._loop.time()
        self.heartbeat: asyncio.Task[None] | None = None
        self.timer = _heartbeat_timer.of[self._loop]
        self.timer.streams.add(self)

    def buffer(self, events: Sequence[Any]) -> None:
        """Hold `events` back; the next write or the first comment sends them."""
        self._events += events

    def _encode_buffered(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._buffered += self._encode(events)

    def write(self, events: Sequence[Any]) -> Awaitable[None]:
        exchange = self.exchange
        if self._events:
            self._encode_buffered()
        body = self._encode(events)
        if not body or self.heartbeat or self._buffered or not exchange.started:
            return self._write(body)
        # The most frequent case: it needs no coroutine beside the server's.
        self.written_at = self._loop.time()
        return exchange.send(
            {"type": "http.response.body", "body": body, "more_body": True}
        )

    async def _write(self, body: bytes) -> None:
        if self.heartbeat is not None:
            await self.heartbeat
        if body:
            await self._send(body)

    async def end(self, events: Sequence[Any] = ()) -> None:
        """Send the last events and end the response."""
        self.stop_heartbeats()
        self._encode_buffered()
        body = self._encode(events) if events else b""
        if self.heartbeat is not None:
            await self.heartbeat
        await self._send(body, last=True)

    def stop_heartbeats(self) -> None:
        """Send no more heartbeats."""
        self.timer.streams.discard(self)

    async def _send(self, body: bytes, *, last: bool = False) -> None:
        if self._buffered:
            body, self._buffered = self._buffered + body, b""
        self.written_at = self._loop.time()
        if not self.exchange.started:
            self.exchange.response_headers |= self._headers()
            await self.exchange.start_stream()
        await self.exchange.write(body, last=last)

    def check_silence(self, now: float) -> None:
        """Send a heartbeat if nothing was written for too long."""
        max_silence = HEARTBEAT if self.exchange.started else self._status_wait()
        if now - self.written_at >= max_silence and self.heartbeat is None:
            self.heartbeat = asyncio.ensure_future(self._send_heartbeat())

    async def _send_heartbeat(self) -> None:
        # Since it was due, the request may have been refused with its own status.
        if self in self.timer.streams:
            self._encode_buffered()
            await self._send(_HEARTBEAT_COMMENT)
        self.heartbeat = None


class _HeartbeatTimer:
    """One timer for all open streams of an event loop.

    A timer for each stream takes half a kilobyte, and setting it takes longer than
    checking all streams.
    """

    def __init__(self) -> None:
        self.streams: set[EventStream] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.call_later(_CHECK_INTERVAL, self.check_streams)

    def check_streams(self) -> None:
        if not self.streams:
            _heartbeat_timer.pop()
            return
        self._loop.call_later(_CHECK_INTERVAL, self.check_streams)
        now = self._loop.time()
        for stream in self.streams:
            stream.check_silence(now)


_heartbeat_timer = PerLoop(_HeartbeatTimer)
