"""Django under ASGI: its WSGI application, called in one of a fixed number of threads.

Django's ASGI application creates a thread for every request and switches between the
thread and the event loop for each middleware and each signal. All middleware and views
of this project are synchronous, so the WSGI application runs them in one call, from the
signal `request_started` to `request_finished`. All requests share THREADS threads: a
hundred concurrent requests would otherwise open a hundred connections that compete for
SQLite's only write lock.

Why: docs/decisions/0023-django-in-few-threads.md
Source: https://peps.python.org/pep-3333/
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import IO, Any
from wsgiref.util import FileWrapper

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.wsgi import get_wsgi_application

from conversations.access import overload
from conversations.engine.connection_revocation import CREDENTIAL, STORE_CREDENTIAL
from conversations.engine.database import disk_space
from conversations.http.decompression import (
    CorruptBody,
    UnknownEncoding,
    UnpackedTooLong,
)
from conversations.http.request_body import (
    BodyTooLong,
    ClientDisconnected,
    content_encoding,
    read_pieces,
)
from project.server import server_errors
from project.server.large_bodies import has_credentials, is_known
from project.server.request_threads import RequestThreads

#: Paths of supervisors.
SUPERVISED = ("/healthz", "/readyz", "/metrics")
#: What REST does not begin above a limit of the process. Its views check it too, but
#: only after the body was read and a thread was free.
NEW_WORK = re.compile(r"/api/(?:conversations/[^/]+/turns|turns/[^/]+/continue)/")
FILE_PIECE = 2**16  # bytes of a file that are sent at once

#: Not `run_in_executor`: `async_to_sync` in a view uses the server's event loop.
_in_thread: Callable[..., Any] = partial(sync_to_async, thread_sensitive=False)
_Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Handler:
    """ASGI application for HTTP requests."""

    def __init__(self) -> None:
        self._application = get_wsgi_application()
        self._threads = RequestThreads()
        # A probe waits for no request, and none for the other: a database that hangs
        # must not get the process killed. And metrics matter most when all threads are
        # busy.
        self._own_threads = {path: RequestThreads() for path in SUPERVISED}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if overload.load.excess and _is_new_work(scope):
            await _refuse_new_work(scope, send)
            return
        with suppress(ClientDisconnected):
            try:
                body = await self._read_body(scope, receive)
            except BodyTooLong as exc:
                await _refuse(scope, send, 413, server_errors.body_too_large, exc.limit)
                return
            except UnpackedTooLong:
                size = settings.MAX_INPUT_SIZE
                await _refuse(scope, send, 413, server_errors.content_too_large, size)
                return
            except UnknownEncoding:
                await _refuse(scope, send, 415, server_errors.unknown_encoding)
                return
            except CorruptBody:
                await _refuse(scope, send, 400, server_errors.corrupt_body)
                return
            except OSError as exc:
                if not disk_space.report_full(exc):
                    raise
                await _refuse(scope, send, 507, server_errors.disk_full)
                return
            threads = self._own_threads.get(scope["path"], self._threads)
            async with threads.take() as thread:
                respond = _in_thread(self._respond, executor=thread.executor)
                response = await respond(scope, body)
                thread.streams += response.rest is not None
            if response.rest is None:
                await send(response.start)
                await send({"type": "http.response.body", "body": response.first})
                return
            try:
                await _stream(thread.executor, response, receive, send)
            finally:
                thread.streams -= 1

    async def _read_body(self, scope: Any, receive: Any) -> IO[bytes]:
        """Raises OSError and the exceptions of `read_pieces`."""
        headers = dict(scope["headers"])
        limit = min(settings.DATA_UPLOAD_MAX_MEMORY_SIZE, settings.MAX_REQUEST_SIZE)
        length = headers.get(b"content-length", b"0")
        # Without a length and in no chunks there is no body (RFC 9112, section 6.3).
        is_short = length.isdigit() and int(length) <= limit
        if b"transfer-encoding" in headers or not is_short:
            limit = await self._find_limit(scope, headers, limit)
        pieces = read_pieces(headers, receive, limit)
        with ExitStack() as stack:
            max_in_memory = settings.FILE_UPLOAD_MAX_MEMORY_SIZE
            body = stack.enter_context(tempfile.SpooledTemporaryFile(max_in_memory))
            async with aclosing(pieces):
                async for piece in pieces:
                    body.write(piece)
            body.seek(0)
            stack.pop_all()
        return body

    async def _find_limit(
        self, scope: Any, headers: dict[bytes, bytes], limit: int
    ) -> int:
        """`limit`, or more for those who are known. Reads the database only if that
        decides."""
        longest = settings.MAX_REQUEST_SIZE
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > longest:
            return longest
        if not has_credentials(headers):
            return limit
        threads = self._own_threads.get(scope["path"], self._threads)
        async with threads.take() as thread:
            known = await _in_thread(is_known, executor=thread.executor)(headers)
        return longest if known else limit

    def _respond(self, scope: Any, body: IO[bytes]) -> WSGIResponse:
        with body:
            return WSGIResponse.of(self._application, build_environ(scope, body))


async def _stream(
    thread: ThreadPoolExecutor, response: WSGIResponse, receive: Any, send: Any
) -> None:
    """Send the response until it is complete or the client disconnects."""
    sending = asyncio.ensure_future(_send_pieces(thread, response, send))
    watching = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    finally:
        for task in (sending, watching):
            task.cancel()
        await asyncio.gather(sending, watching, return_exceptions=True)
        await _in_thread(response.close, executor=thread)()


async def _send_pieces(
    thread: ThreadPoolExecutor, response: WSGIResponse, send: Any
) -> None:
    assert response.rest is not None
    await send(response.start)
    piece: bytes | None = response.first
    read_next = _in_thread(next, executor=thread)
    while piece is not None:
        body = {"type": "http.response.body", "body": piece, "more_body": True}
        await send(body)
        piece = await read_next(response.rest, None)
    await send({"type": "http.response.body", "body": b""})


async def _wait_for_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _is_new_work(scope: Any) -> bool:
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return scope["method"] == "POST" and NEW_WORK.fullmatch(path) is not None


async def _refuse_new_work(scope: Any, send: Any) -> None:
    """Without a thread, as all of them may be busy, and unread."""
    busy = overload.note_refusal(overload.load.excess)
    headers, body = server_errors.server_busy(scope["path"].encode(), busy)
    await send(
        {"type": "http.response.start", "status": busy.status, "headers": headers}
    )
    await send({"type": "http.response.body", "body": body})


async def _refuse(
    scope: Any,
    send: Any,
    status: int,
    error: Callable[..., tuple[server_errors.Headers, bytes]],
    *arguments: int,
) -> None:
    page = await asyncio.to_thread(server_errors.find_page, scope, status, *arguments)
    headers, body = page or error(scope["path"].encode(), *arguments)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def build_environ(scope: Any, body: IO[bytes]) -> dict[str, Any]:
    """The environ of the request. It does not contain the scope, whose headers an error
    report would show."""
    root, path = scope.get("root_path", ""), scope["path"]
    host, port = scope.get("server") or ("unknown", 0)
    environ = {
        "REQUEST_METHOD": scope["method"],
        # The bytes of the texts, as WSGI wants them: one character each.
        "SCRIPT_NAME": root.encode().decode("latin-1"),
        "PATH_INFO": path.removeprefix(root).encode().decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": f"HTTP/{scope.get('http_version', '1.1')}",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.get("scheme", "http"),
        "wsgi.input": body,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.file_wrapper": _wrap_file,
        STORE_CREDENTIAL: partial(scope.__setitem__, CREDENTIAL),
    }
    if client := scope.get("client"):
        environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = client
    environ |= _build_headers(scope["headers"])
    size = body.seek(0, 2)
    body.seek(0)
    is_compressed = content_encoding(dict(scope["headers"]))
    if is_compressed or (size and "CONTENT_LENGTH" not in environ):
        environ.pop("HTTP_CONTENT_ENCODING", None)  # `body` was decompressed
        environ["CONTENT_LENGTH"] = str(size)
    return environ


def _build_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    values = defaultdict[str, list[str]](list)
    for raw_name, value in headers:
        name = raw_name.decode("latin-1")
        if "_" not in name:  # it would become the variable of the name with hyphens
            values[name.upper().replace("-", "_")].append(value.decode("latin-1"))
    unprefixed = ("CONTENT_LENGTH", "CONTENT_TYPE")
    return {
        # HTTP/2 splits the header Cookie (RFC 9113, section 8.2.3).
        name if name in unprefixed else f"HTTP_{name}": (
            "; " if name == "COOKIE" else ","
        ).join(found)
        for name, found in values.items()
    }


def _wrap_file(file: Any, _size: int) -> FileWrapper:
    return FileWrapper(file, FILE_PIECE)


@dataclass(slots=True)
class WSGIResponse:
    """The response of a WSGI application, with the first piece of its body.

    A body of one piece is closed already. `rest` are the pieces of any other body; the
    caller closes the response.
    """

    start: dict[str, Any]  # ASGI message
    first: bytes
    rest: Iterator[bytes] | None
    close: Callable[[], object]

    @classmethod
    def of(cls, application: _Application, environ: dict[str, Any]) -> WSGIResponse:
        """Call the application. Call this, `rest` and `close` in one thread."""
        start: dict[str, Any] = {"type": "http.response.start"}

        def start_response(
            status: str, headers: list[tuple[str, str]], exc_info: Any = None
        ) -> None:
            start["status"] = int(status.partition(" ")[0])
            start["headers"] = [
                (name.encode("latin-1"), value.strip().encode("latin-1"))
                for name, value in headers
            ]

        body = application(environ, start_response)
        close: Callable[[], object] = getattr(body, "close", lambda: None)
        try:
            pieces = iter(body)
            first, second = next(pieces, b""), next(pieces, None)
        except BaseException:
            close()
            raise
        if second is None:
            close()
            return cls(start, first, None, close)
        return cls(start, first, _chain(second, pieces), close)


def _chain(first: bytes, others: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from others
