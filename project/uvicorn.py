"""Connections of uvicorn that are written to at once.

What a chunk of an answer costs is, above all, its way through the server: uvicorn waits
until it may write, looks for what else a message may be, and has the `websockets`
library make a frame of it. Where none of that can be the case, bytes go straight to the
transport, which is what all of it ends in. Any other server, or another implementation
of WebSocket, has no such way and is sent messages, as ASGI says.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from conversations.engine import WRITE
from conversations.sse import GONE
from llm.connections import Few


def with_write(scope: Any, send: Any) -> Any:
    """`scope`, with the way past uvicorn where it is uvicorn that serves."""
    served_by = getattr(send, "__self__", None)
    ways = _WAYS.get(f"{type(served_by).__module__}.{type(served_by).__name__}")
    if ways is None:
        return scope
    scope["extensions"] = {**scope.get("extensions", {}), **ways(served_by)}
    return scope


def _socket(protocol: Any) -> dict[str, Any]:
    from project.small_socket import SmallSocket

    _decline_compression(protocol)
    return {WRITE: SmallSocket.take_over(protocol).write_now}


def _decline_compression(protocol: Any) -> None:
    """A browser offers it and uvicorn takes it: some 40 KB a connection, and each
    follower of a turn would have its chunks compressed anew, to save half of 300 bytes.
    Daphne does not compress either."""
    if protocol.conn.extensions:
        protocol.conn.extensions = []
        del protocol.response.headers["Sec-WebSocket-Extensions"]


def _answer(cycle: Any) -> dict[str, Any]:
    _make_small(cycle.message_event, "_waiters")
    _make_small(getattr(cycle.flow, "_is_writable_event", None), "_waiters")
    _make_small(getattr(cycle.on_response, "__self__", None), "pipeline")
    answer = _Answer(cycle)
    return {WRITE: answer.write, GONE: answer.watch}


class _Answer:
    __slots__ = ("_cycle", "_flow", "_transport")

    def __init__(self, cycle: Any) -> None:
        self._cycle, self._flow, self._transport = cycle, cycle.flow, cycle.transport

    def write(self, data: bytes) -> bool:
        cycle = self._cycle
        if (
            not cycle.chunked_encoding
            or cycle.disconnected
            or cycle.response_complete
            or self._flow.write_paused
        ):
            return False
        if len(cycle.scope) > 1:
            _forget_request(cycle)
        self._transport.write(data)
        return True

    def watch(self, act: Callable[[], None]) -> None:
        """Has `act` called once the caller has hung up."""
        if self._cycle.disconnected:
            act()
            return
        told = self._cycle.message_event
        told.__class__ = _Told
        told.cycle, told.act = self._cycle, act


class _Told(asyncio.Event):
    """Set by uvicorn when a request, or its connection, has news."""

    cycle: Any
    act: Callable[[], None] | None

    def set(self) -> None:
        super().set()
        if self.act is None or not (
            self.cycle.disconnected or self.cycle.response_complete
        ):
            return
        act, self.act = self.act, None
        cycle, self.cycle = self.cycle, None
        if cycle.disconnected:
            act()


_SCOPES = {method: {"method": method} for method in ("GET", "POST")}


def _forget_request(cycle: Any) -> None:
    """Once it is being answered in chunks, uvicorn asks for its method alone."""
    scope = cycle.scope
    small = _SCOPES.get(scope["method"])
    if small is None:
        return
    cycle.scope = small
    connection: Any = getattr(cycle.on_response, "__self__", None)
    if getattr(connection, "scope", None) is scope:  # it reads no other yet
        connection.scope, connection.headers = small, []


def _make_small(owner: Any, name: str) -> None:
    """Each connection has three deques."""
    queue = getattr(owner, name, None)
    if type(queue) is deque:
        setattr(owner, name, Few(queue))


_PROTOCOLS = "uvicorn.protocols"
_WAYS: dict[str, Callable[[Any], dict[str, Any]]] = {
    f"{_PROTOCOLS}.websockets.websockets_sansio_impl.WebSocketsSansIOProtocol": _socket,
    f"{_PROTOCOLS}.http.httptools_impl.RequestResponseCycle": _answer,
}
