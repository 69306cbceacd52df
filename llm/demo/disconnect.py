"""Close a connection in the middle of an answer, for which ASGI has no message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def break_off(send: Send) -> None:
    """Close the connection; the application must then return without ending its answer.

    Uvicorn closes it when the application returns like that. Daphne would wait for more
    for ever, and an exception would end its housekeeping; so there we close the channel
    of the Twisted request, to which its `send` is bound by a partial.
    """
    for bound in getattr(send, "args", ()):
        if (channel := getattr(bound, "channel", None)) is not None:
            channel.loseConnection()
