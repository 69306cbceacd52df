"""ASGI responder for streams of turn events over HTTP (Server-Sent Events).

A view that has authorized the request returns a `TurnStreamResponse`. The ASGI
middleware `StreamMiddleware` in front of Django replaces it with the live stream on the
same connection. So Django authorizes each stream but is not involved while it runs, and
a client's disconnect is noticed at once, even while the turn waits.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    MutableMapping,
)
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import orjson
from django.http import HttpResponse

from conversations import engine
from conversations.access.errors import TooManyConnections
from conversations.engine import Entry
from conversations.engine.connection_revocation import (
    CREDENTIAL,
    Credential,
    open_connections,
)
from llm.wire import sse

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
StreamForm = Literal["events", "text", "response"]

_LINE_END = re.compile(r"\r\n|\r|\n")
STREAM_TYPE = "text/event-stream; charset=utf-8"
STREAM_CACHING = "no-cache, no-transform"
HEARTBEAT = 15.0  # seconds
_RECONNECT_AFTER = (1000, 5000)  # milliseconds
_HEADER = b"x-parley-follow"  # from a view to `StreamMiddleware`, never sent
_CREDENTIAL_INVALID = {
    "error": {
        "message": "The session or access token is no longer valid.",
        "type": "invalid_request_error",
        "param": None,
        "code": "not_authenticated",
    }
}
_TURN_DELETED = {
    "error": {
        "message": engine.TurnDeleted.__doc__,
        "type": "invalid_request_error",
        "param": None,
        "code": "not_found",
    }
}
_RECONNECT = b"event: reconnect\ndata: {}\n\n"


class TurnStreamResponse(HttpResponse):
    """Placeholder that `StreamMiddleware` replaces with a turn's stream.

    `form` selects all `events`, the plain `text` of the answer, or the finished
    `response` once the turn ends. `is_checked`: the view has found that one more
    connection may be open, and has opened the turn since.
    """

    def __init__(
        self,
        turn_id: str,
        after: str | None = None,
        form: StreamForm = "events",
        *,
        is_checked: bool = False,
    ) -> None:
        super().__init__(status=202)
        self.turn_id, self.after, self.form = turn_id, after, form
        self["X-Parley-Follow"] = json.dumps([turn_id, after, form, is_checked])


class StreamMiddleware:
    """ASGI middleware that serves the streams that Django's views have authorized."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = await self._call_app(scope, receive, send)
        del scope  # frees the request while the stream runs
        if stream is not None:
            await stream.serve(receive, send)

    async def _call_app(
        self, scope: Scope, receive: Receive, send: Send
    ) -> _Stream | None:
        """Call the app; return the stream that replaces its response, if any."""
        stream: _Stream | None = None

        async def send_or_capture(message: Message) -> None:
            nonlocal stream
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                for name, value in headers:
                    if name.lower() == _HEADER:
                        turn_id, after, form, is_checked = json.loads(value)
                        kept = _stream_headers(headers)
                        credential = scope.get(CREDENTIAL)
                        stream = _Stream(
                            turn_id, after, form, is_checked, kept, credential
                        )
            if stream is None:
                await send(message)

        await _InOwnContext(self._app(scope, receive, send_or_capture))
        return stream


@dataclass(slots=True, eq=False, repr=False)
class _InOwnContext:
    """Awaits in a copy of the context, so that the context variables that Django sets
    (about 2 KB) are freed before the stream runs."""

    awaited: Awaitable[None]

    def __await__(self) -> Generator[Any, Any, None]:
        run, steps = copy_context().run, self.awaited.__await__()
        step: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                future = run(step)
            except StopIteration:
                return
            try:
                yield future
                step = partial(next, steps)
            except BaseException as exc:  # pass cancellation on to the inner awaitable
                step = partial(steps.throw, exc)


def _stream_headers(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of Django's response that also apply to the stream."""
    dropped = (_HEADER, b"content-type", b"content-length", b"cache-control", b"vary")
    return [(name, value) for name, value in headers if name.lower() not in dropped]


@dataclass(slots=True, eq=False, repr=False)
class _Stream:
    turn_id: str
    after: str | None
    form: StreamForm
    is_checked: bool
    headers: list[tuple[bytes, bytes]]
    credential: Credential | None  # how the client was authenticated
    _task: asyncio.Task[Any] | None = None  # set while it may be cancelled
    _is_disconnected: bool = False
    _has_started: bool = False
    _is_revoked: bool = False

    async def serve(self, receive: Receive, send: Send) -> None:
        """Send the stream until the turn ends, the server stops or the client
        disconnects.

        A disconnect cancels this task. Waiting for both the stream and the disconnect
        would take two more tasks.
        """
        task = self._task = asyncio.current_task()
        assert task is not None
        unregister: Callable[[], None] | None = None
        watching = asyncio.ensure_future(_wait_for_disconnect(receive))
        watching.add_done_callback(self._disconnect)
        try:
            if self.credential is not None:
                connections = open_connections.of[asyncio.get_running_loop()]
                try:
                    unregister = connections.add(
                        self.credential, self._revoke, is_checked=self.is_checked
                    )
                except TooManyConnections as exc:
                    await self._refuse_another(send, exc)
                    return
            await (self._respond if self.form == "response" else self._stream)(send)
        except asyncio.CancelledError:
            if not (self._is_disconnected or self._is_revoked) or task.uncancel():
                raise
            if not self._is_disconnected:
                await self._refuse(send)
        finally:
            self._task = None
            if unregister is not None:
                unregister()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _disconnect(self, _: object = None) -> None:
        if self._task is not None and not self._is_disconnected:
            self._is_disconnected = True
            if not self._is_revoked:
                self._task.cancel()

    def _revoke(self) -> None:
        if (
            self._task is not None
            and not self._is_revoked
            and not self._is_disconnected
        ):
            self._is_revoked = True
            self._task.cancel()

    async def _refuse(self, send: Send) -> None:
        """End the stream because the client's session or token was revoked."""
        if self._has_started:
            await send({"type": "http.response.body", "body": b""})
            return
        await self._start(send, 401, b"application/json")
        await send(
            {"type": "http.response.body", "body": orjson.dumps(_CREDENTIAL_INVALID)}
        )

    async def _refuse_another(self, send: Send, exc: TooManyConnections) -> None:
        self.headers.append((b"retry-after", b"%d" % (exc.retry_after or 1)))
        await self._start(send, exc.status, b"application/json")
        error = {"message": str(exc), "type": exc.type, "code": exc.openai_code}
        body = orjson.dumps({"error": {**error, "param": None}})
        await send({"type": "http.response.body", "body": body})

    async def _respond(self, send: Send) -> None:
        try:
            status, body = 200, await engine.response_of(self.turn_id)
        except engine.NotRunning as exc:
            error = {"message": str(exc) or engine.NotRunning.__doc__, "param": None}
            error |= {"type": "server_error", "code": "not_running"}
            status, body = 503, {"error": error}
        except engine.TurnDeleted:
            status, body = 404, _TURN_DELETED
        await self._start(send, status, b"application/json")
        await send({"type": "http.response.body", "body": orjson.dumps(body)})

    async def _stream(self, send: Send) -> None:
        try:
            is_over = self.after and await engine.is_at_end(self.turn_id, self.after)
            batches = engine.subscribe(self.turn_id, self.after)
        except engine.NotRunning:  # the server is shutting down
            await self._start(send, 200, STREAM_TYPE.encode())
            body = _reconnection_time() + _RECONNECT
            await send({"type": "http.response.body", "body": body})
            return
        if is_over:
            # After 204 a browser's EventSource does not reconnect.
            await self._start(send, 204, b"text/event-stream")
            await send({"type": "http.response.body", "body": b""})
            return
        await self._start(send, 200, STREAM_TYPE.encode())
        frame = _text_frame if self.form == "text" else _event_frame
        try:
            async with _heartbeat(send):
                last = _RECONNECT
                async for entries in batches:
                    await _send_body(send, b"".join(map(frame, entries)))
                    if entries[-1].is_last:
                        last = b"data: [DONE]\n\n" if self.form == "text" else b""
                    del entries  # free them while waiting for the next batch
        except engine.TurnDeleted:
            pass  # a client that reconnects is answered 404
        finally:
            await batches.aclose()
        await send({"type": "http.response.body", "body": last})

    async def _start(self, send: Send, status: int, content_type: bytes) -> None:
        headers, self.headers, self._has_started = self.headers, [], True
        caching = STREAM_CACHING.encode()
        if content_type == b"application/json":
            caching = b"no-store"
        headers += [
            (b"content-type", content_type),
            (b"cache-control", caching),
            (b"x-accel-buffering", b"no"),
        ]
        await send(
            {"type": "http.response.start", "status": status, "headers": headers}
        )


def _reconnection_time() -> bytes:
    """The delay before an EventSource reconnects. It differs from stream to stream,
    because a restart ends those of all clients at once."""
    return b"retry: %d\n" % random.randint(*_RECONNECT_AFTER)


def _event_frame(entry: Entry) -> bytes:
    return entry.frame


def _text_frame(entry: Entry) -> bytes:
    match entry.event:
        case {"type": "response.output_text.delta", "delta": str(text)}:
            return f"id: {entry.position}\n{_data_lines(text)}\n".encode()
        case {"type": "error", "error": {"message": str(message)}}:
            return f"event: error\n{_data_lines(message)}\n".encode()
        case {"type": "parley:step.reset"}:
            return b"event: reset\ndata: the answer is sent again\n\n"
    return b""


def _data_lines(text: str) -> str:
    """Each of the three line ends of SSE would end the line of data."""
    return "".join(f"data: {line}\n" for line in _LINE_END.split(text))


async def _send_body(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})


@asynccontextmanager
async def _heartbeat(send: Send) -> AsyncIterator[None]:
    """Send a comment at once and every `HEARTBEAT` seconds, so that no proxy takes a
    silent stream for a dead one."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            await _send_body(send, sse.comment("heartbeat"))

    await _send_body(send, _reconnection_time() + sse.comment("heartbeat"))
    beating = asyncio.ensure_future(beat())
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
