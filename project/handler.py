"""Django under ASGI, at one change of thread a request and on few threads.

Django's own handler makes a thread for every request, and lets each middleware change
between it and the event loop. All our middleware and views are synchronous, so here
they run as one call; and a few threads serve all requests, so that a hundred requests
at once do not open a hundred connections that fight for SQLite's one write lock.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpRequest, HttpResponseBase

THREADS = 8


class Handler(ASGIHandler):
    def __init__(self) -> None:
        super().__init__()
        self._threads = [
            ThreadPoolExecutor(1, thread_name_prefix="parley-django")
            for _ in range(THREADS)
        ]
        self._requests = [0] * THREADS  # of each

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

    async def get_response_async(self, request: HttpRequest) -> HttpResponseBase:
        return await sync_to_async(self.get_response)(request)
