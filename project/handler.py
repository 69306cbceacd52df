"""Django under ASGI, at one change of thread a request and on few threads.

Django's own handler makes a thread for every request, and changes between it and the
event loop for each middleware, and before and after it for its signals. All our
middleware and views are synchronous, so here they run as one call, from the signal that
a request has begun to the one that it is over; and a few threads serve all requests, so
that a hundred requests at once do not open a hundred connections that fight for
SQLite's one write lock.
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

from conversations.engine import storage
from conversations.request_body import (
    HungUp,
    TooLong,
    content_encoding,
    read_pieces,
)
from conversations.unpacking import Damaged, UnknownEncoding, UnpackedTooLong
from project import server_errors

THREADS = 8


class Handler(ASGIHandler):
    def __init__(self) -> None:
        super().__init__()
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix="parley-django")
            for _ in range(THREADS)
        ]
        self._requests = [0] * THREADS  # of each
        self._answer_in_thread = sync_to_async(self._answer)

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
        with suppress(HungUp, RequestAborted):
            try:
                body = await self._body(scope, receive)
            except TooLong:
                size = settings.MAX_REQUEST_SIZE
                await _refuse(scope, send, 413, server_errors.too_large, size)
                return
            except UnpackedTooLong:
                size = settings.MAX_INPUT_SIZE
                await _refuse(scope, send, 413, server_errors.unpacked_too_large, size)
                return
            except UnknownEncoding:
                await _refuse(scope, send, 415, server_errors.unknown_encoding)
                return
            except Damaged:
                await _refuse(scope, send, 400, server_errors.damaged)
                return
            except OSError as exc:
                if not storage.report_full(exc):
                    raise
                await _refuse(scope, send, 507, server_errors.no_room)
                return
            scope = _as_it_is(scope, body)
            response = await self._answer_in_thread(scope, body)
            if response.streaming:
                await self._stream(response, receive, send)
            else:
                await self.send_response(response, send)

    async def _body(self, scope: Any, receive: Any) -> IO[bytes]:
        """As Django's `read_body`, which takes any amount, and unpacked where it was
        packed. Raises what `read_pieces` does, and OSError."""
        pieces = read_pieces(dict(scope["headers"]), receive, settings.MAX_REQUEST_SIZE)
        with ExitStack() as stack:
            most = settings.FILE_UPLOAD_MAX_MEMORY_SIZE
            body = stack.enter_context(tempfile.SpooledTemporaryFile(most))
            async with aclosing(pieces):
                async for piece in pieces:
                    body.write(piece)
            body.seek(0)
            stack.pop_all()
        return body

    def _answer(self, scope: Any, body: IO[bytes]) -> HttpResponseBase:
        """A response, which is over for Django unless it is streamed."""
        set_script_prefix(get_script_prefix(scope))
        request_started.send(sender=type(self), scope=scope)
        request, refused = self.create_request(scope, body)
        response = self.get_response(request) if request else refused
        assert response is not None
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if not response.streaming:
            response.close()
        body.close()
        return response

    async def _stream(self, response: Any, receive: Any, send: Any) -> None:
        """Until all is sent, or the caller has hung up."""
        if not response.is_async:  # a file; Django would read all of it first
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
    read_next: Any = sync_to_async(next)  # its types know no default
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


def _as_it_is(scope: Any, body: IO[bytes]) -> Any:
    """The scope of a request whose body was unpacked or came without its length, as if
    it had come unpacked and with its length."""
    headers = dict(scope["headers"])
    is_packed = content_encoding(headers)
    size = body.seek(0, 2)
    body.seek(0)
    if not is_packed and (b"content-length" in headers or not size):
        return scope
    others = [
        (name, value)
        for name, value in scope["headers"]
        if name not in (b"content-encoding", b"content-length")
    ]
    return {**scope, "headers": [*others, (b"content-length", b"%d" % size)]}
