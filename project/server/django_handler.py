"""Django's ASGI handler with one thread switch a request and a fixed number of threads.

Django's own handler creates a thread for every request and switches between the thread
and the event loop for each middleware and each signal. All middleware and views of this
project are synchronous, so they run as one call, from the signal `request_started` to
`request_finished`. All requests share THREADS threads: a hundred concurrent requests
would otherwise open a hundred connections that compete for SQLite's only write lock.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, aclosing, suppress
from typing import IO, Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.signals import request_started
from django.http import FileResponse, HttpResponseBase
from django.urls import set_script_prefix

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

THREADS = 8


class Handler(ASGIHandler):
    def __init__(self) -> None:
        super().__init__()
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix="parley-django")
            for _ in range(THREADS)
        ]
        self._requests = [0] * THREADS  # unfinished requests of each thread
        self._respond_in_thread = sync_to_async(self._respond)

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware(is_async=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        number = self._requests.index(min(self._requests))
        self._requests[number] += 1
        try:
            async with ThreadSensitiveContext(executor=self._threads[number]):
                await self.handle(scope, receive, send)
        finally:
            self._requests[number] -= 1

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        with suppress(ClientDisconnected, RequestAborted):
            try:
                body = await self._read_body(scope, receive)
            except BodyTooLong:
                size = settings.MAX_REQUEST_SIZE
                await _refuse(scope, send, 413, server_errors.body_too_large, size)
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
            scope = _describe_body(scope, body)
            response = await self._respond_in_thread(scope, body)
            if response.streaming:
                await self._stream(response, receive, send)
            else:
                await self.send_response(response, send)

    async def _read_body(self, scope: Any, receive: Any) -> IO[bytes]:
        """Like Django's `read_body`, with a limit of the size and with decompression.
        Raises OSError and the exceptions of `read_pieces`."""
        pieces = read_pieces(dict(scope["headers"]), receive, settings.MAX_REQUEST_SIZE)
        with ExitStack() as stack:
            max_in_memory = settings.FILE_UPLOAD_MAX_MEMORY_SIZE
            body = stack.enter_context(tempfile.SpooledTemporaryFile(max_in_memory))
            async with aclosing(pieces):
                async for piece in pieces:
                    body.write(piece)
            body.seek(0)
            stack.pop_all()
        return body

    def _respond(self, scope: Any, body: IO[bytes]) -> HttpResponseBase:
        """Create the response, and close it unless it is streamed."""
        set_script_prefix(get_script_prefix(scope))
        request_started.send(sender=type(self), scope=scope)
        request, error_response = self.create_request(scope, body)
        response = self.get_response(request) if request else error_response
        assert response is not None
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if not response.streaming:
            response.close()
        body.close()
        return response

    async def _stream(self, response: Any, receive: Any, send: Any) -> None:
        """Send the response until it is complete or the client disconnects."""
        if not response.is_async:  # a file, which Django would read as a whole first
            response.streaming_content = _iterate_in_thread(response.streaming_content)
        sending = asyncio.ensure_future(self.send_response(response, send))
        watching = asyncio.ensure_future(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, watching):
                task.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)
            await sync_to_async(response.close)()


async def _iterate_in_thread(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    read_next: Any = sync_to_async(next)  # Any: its types lack the default
    while (part := await read_next(parts, None)) is not None:
        yield part


async def _refuse(
    scope: Any,
    send: Any,
    status: int,
    error: Callable[..., tuple[server_errors.Headers, bytes]],
    *arguments: int,
) -> None:
    headers, body = error(scope["path"].encode(), *arguments)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _describe_body(scope: Any, body: IO[bytes]) -> Any:
    """Return the scope with headers that describe the body as it was read:
    decompressed, and with a Content-Length."""
    headers = dict(scope["headers"])
    is_compressed = content_encoding(headers)
    size = body.seek(0, 2)
    body.seek(0)
    if not is_compressed and (b"content-length" in headers or not size):
        return scope
    others = [
        (name, value)
        for name, value in scope["headers"]
        if name not in (b"content-encoding", b"content-length")
    ]
    return {**scope, "headers": [*others, (b"content-length", b"%d" % size)]}
