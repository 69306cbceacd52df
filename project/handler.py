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
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import IO, Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.conf import settings
from django.core.exceptions import RequestAborted, RequestDataTooBig
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.signals import request_started
from django.http import FileResponse, HttpResponseBase
from django.urls import set_script_prefix

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
        with suppress(RequestAborted):
            try:
                body = await self._body(scope, receive)
            except RequestDataTooBig:
                await self._refuse_body(scope, send)
                return
            response = await self._answer_in_thread(scope, body)
            if response.streaming:
                await self._stream(response, receive, send)
            else:
                await self.send_response(response, send)

    async def _body(self, scope: Any, receive: Any) -> IO[bytes]:
        """As Django's `read_body`, which takes any amount. Raises RequestAborted,
        RequestDataTooBig."""
        announced = dict(scope["headers"]).get(b"content-length", b"")
        _check_size(int(announced) if announced.isdigit() else 0)
        with ExitStack() as stack:
            most = settings.FILE_UPLOAD_MAX_MEMORY_SIZE
            body = stack.enter_context(tempfile.SpooledTemporaryFile(most))
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise RequestAborted
                body.write(message.get("body", b""))
                _check_size(body.tell())
                more = message.get("more_body", False)
            body.seek(0)
            stack.pop_all()
        return body

    async def _refuse_body(self, scope: Any, send: Any) -> None:
        path = scope["path"].encode()
        headers, body = server_errors.too_large(path, settings.MAX_REQUEST_SIZE)
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, scope: Any, body: IO[bytes]) -> HttpResponseBase:
        """A response, which is over for Django unless it is streamed."""
        set_script_prefix(get_script_prefix(scope))
        request_started.send(sender=type(self), scope=scope)
        request, refused = self.create_request(scope, body)
        response = self.get_response(request) if request else refused
        assert response is not None
        # Its own end is told by its `close`.
        vars(response)["_handler_class"] = type(self)
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if not response.streaming:
            response.close()
        body.close()
        return response

    async def _stream(self, response: Any, receive: Any, send: Any) -> None:
        """Until all is sent, or the caller has hung up."""
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


def _check_size(size: int) -> None:
    if size > settings.MAX_REQUEST_SIZE:
        raise RequestDataTooBig
