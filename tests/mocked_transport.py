"""`respx.mock(using="parley")` answers what `llm.http.connections` would send."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from respx.mocks import Mocker
from respx.models import PassThrough

Send = Callable[[Any, httpx.Request], Awaitable[httpx.Response]]


class TransportMocker(Mocker):
    """Answers in place of the transport, for model calls and for downloads."""

    name = "parley"
    targets = ["llm.http.connections.Transport"]
    target_methods = ["handle_async_request"]

    @classmethod
    def mock(cls, spec: Send) -> Send:
        async def handle_async_request(
            self: Any, request: httpx.Request
        ) -> httpx.Response:
            await request.aread()
            try:
                answer: httpx.Response = await cls.async_handler(request)  # type: ignore[no-untyped-call]
                return answer
            except PassThrough:
                return await spec(self, request)

        return handle_async_request
