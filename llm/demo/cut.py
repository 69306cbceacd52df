"""Breaking a connection off in the middle of an answer, which ASGI has no word for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def break_off(send: Send) -> None:
    """Closes the connection; the application then returns with its answer unfinished.

    Uvicorn closes it when the application returns like that. Daphne would wait for ever
    for more (and an exception would end its housekeeping), so there we close it by
    hand: its `send` is a partial of the server's method and the Twisted request, and
    that of `manage.py serve` a method of the request.
    """
    for known in (getattr(send, "__self__", None), *getattr(send, "args", ())):
        if (channel := getattr(known, "channel", None)) is not None:
            channel.loseConnection()
