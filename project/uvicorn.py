"""Connections of uvicorn that are written to at once.

What a chunk of an answer costs is, above all, its way through the server: uvicorn waits
until it may write, looks for what else a message may be, and has the `websockets`
library make a frame of it. Where none of that can be the case, bytes go straight to the
transport, which is what all of it ends in. Any other server, or another implementation
of WebSocket, has no such way and is sent messages, as ASGI says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from conversations.engine import WRITE, Write


def with_write(scope: Any, send: Any) -> Any:
    """`scope`, with the way past uvicorn where it is uvicorn that serves."""
    served_by = getattr(send, "__self__", None)
    way = _WAYS.get(f"{type(served_by).__module__}.{type(served_by).__name__}")
    if way is None:
        return scope
    scope["extensions"] = {**scope.get("extensions", {}), WRITE: way(served_by)}
    return scope


def _socket(protocol: Any) -> Write:
    from project.small_socket import SmallSocket

    _decline_compression(protocol)
    return SmallSocket.take_over(protocol).write_now


def _decline_compression(protocol: Any) -> None:
    """A browser offers it and uvicorn takes it: some 40 KB a connection, and each
    follower of a turn would have its chunks compressed anew, to save half of 300 bytes.
    Daphne does not compress either."""
    if protocol.conn.extensions:
        protocol.conn.extensions = []
        del protocol.response.headers["Sec-WebSocket-Extensions"]


def _answer(cycle: Any) -> Write:
    flow, transport = cycle.flow, cycle.transport
    _make_small(cycle.message_event, "_waiters")
    _make_small(getattr(flow, "_is_writable_event", None), "_waiters")
    _make_small(getattr(cycle.on_response, "__self__", None), "pipeline")

    def write(data: bytes) -> bool:
        if (
            not cycle.chunked_encoding
            or cycle.disconnected
            or cycle.response_complete
            or flow.write_paused
        ):
            return False
        transport.write(data)
        return True

    return write


class _Few(list[Any]):
    """A queue in which hardly ever anything waits."""

    __slots__ = ()

    def appendleft(self, one: Any) -> None:
        self.insert(0, one)

    def popleft(self) -> Any:
        return self.pop(0)


def _make_small(owner: Any, name: str) -> None:
    """A deque takes 760 bytes, however little is in it, and each connection has three
    of them."""
    queue = getattr(owner, name, None)
    if type(queue) is deque:
        setattr(owner, name, _Few(queue))


_PROTOCOLS = "uvicorn.protocols"
_WAYS: dict[str, Callable[[Any], Write]] = {
    f"{_PROTOCOLS}.websockets.websockets_sansio_impl.WebSocketsSansIOProtocol": _socket,
    f"{_PROTOCOLS}.http.httptools_impl.RequestResponseCycle": _answer,
}
