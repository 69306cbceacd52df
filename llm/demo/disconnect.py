"""Close a connection in the middle of an answer, for which ASGI has no message.

The answer announces more bytes than it has, and that the connection closes after it.
Then its end is a cut: uvicorn refuses to complete it and closes the connection. Daphne
closes the connection a minute later, when Twisted takes it for idle.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

#: Headers of an answer that will be broken off.
UNREACHED_LENGTH = (b"content-length", b"%d" % 2**31)
CLOSES = (b"connection", b"close")


async def break_off(send: Send) -> None:
    """End an answer that has announced more bytes."""
    with suppress(RuntimeError):  # uvicorn: shorter than its Content-Length
        await send({"type": "http.response.body"})
