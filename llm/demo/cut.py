"""Breaking a connection off in the middle of an answer, which ASGI has no word for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def break_off(send: Send) -> None:
    """Closes the connection; the application then returns with its answer unfinished.

    Uvicorn closes it when the application returns like that. Daphne would wait for ever
    for more (and an exception would end its housekeeping), so there we close it by
    hand: its `send` is a method of the request.
    """
    channel = getattr(getattr(send, "__self__", None), "channel", None)
    if channel is not None:
        channel.loseConnection()
