"""A WebSocket of uvicorn's that keeps little while it is open.

A connection of uvicorn's has some forty attributes, most of them the same for all, a
queue made of three deques and a timer; and it holds on to all that the handshake was
about. That is 6 KB an open page. Here an open connection has what is its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from project.inbox import Inbox

_A_SECOND = 4  # as many moments have their own timer, for all who are due then
_HANDSHAKE = {"request", "response", "scope", "server", "client"}
_SHARED = {"app", "app_state", "config", "connections", "default_headers"}
_SHARED |= {"logger", "loop", "tasks"}
_CONSTANTS = (bool, float, int, str, type(None))


class _Open:
    """As much of an event as is asked for where it is set: for all who may write."""

    __slots__ = ()

    def is_set(self) -> bool:
        return True

    def set(self) -> None:
        pass

    async def wait(self) -> bool:
        return True


_OPEN: Any = _Open()


_NOTHING = object()


class SmallSocket(WebSocketsSansIOProtocol):
    writable = _OPEN

    @staticmethod
    def take_over(protocol: Any) -> SmallSocket:
        """`protocol`, which has not been accepted yet, as one of these."""
        protocol.__class__ = SmallSocket
        protocol.queue = Inbox(_taken(protocol.queue))
        del protocol.writable
        small: SmallSocket = protocol
        return small

    def write_now(self, data: bytes) -> bool:
        """See `conversations.engine.WRITE`."""
        if (
            self.conn.state is not State.OPEN
            or self.disconnected
            or self.writable is not _OPEN
        ):
            return False
        self.transport.write(data)
        return True

    def pause_writing(self) -> None:
        if self.writable is _OPEN:
            self.writable = asyncio.Event()

    def resume_writing(self) -> None:
        self.writable.set()
        self.writable = _OPEN

    # Keepalive

    def start_keepalive(self) -> None:
        """The handshake is over."""
        super().start_keepalive()
        self.conn.available_extensions = None
        self.request.headers.clear()  # a parser holds on to the request
        own = {k: v for k, v in vars(self).items() if k not in _HANDSHAKE}
        self.__class__ = kind = _kind_of(type(self), own)
        self.__dict__ = {
            name: value
            for name, value in own.items()
            if getattr(kind, name, _NOTHING) is not value
        }

    def schedule_ping(self) -> None:
        assert self.ping_interval is not None
        delay = max(0.0, self.ping_interval - self.last_ping_rtt)
        timer: Any = _timer(self.loop, self.loop.time() + delay)
        timer.sockets.add(self)
        self.ping_timer = timer

    def stop_keepalive(self) -> None:
        timer: Any = self.ping_timer
        if timer is not None:
            timer.sockets.discard(self)
            self.ping_timer = None
        super().stop_keepalive()


_kinds: dict[Any, type[SmallSocket]] = {}  # by the server's configuration


def _kind_of(kind: type[SmallSocket], own: dict[str, Any]) -> type[SmallSocket]:
    """The class of a server's open connections, where what they share is."""
    config = own["config"]
    if config not in _kinds:
        _kinds[config] = type(
            "SmallSocket",
            (kind,),
            {
                "__module__": __name__,
                **{
                    name: staticmethod(value) if hasattr(value, "__get__") else value
                    for name, value in own.items()
                    if name in _SHARED or type(value) in _CONSTANTS
                },
            },
        )
    return _kinds[config]


def _taken(queue: asyncio.Queue[Any]) -> Iterator[Any]:
    while not queue.empty():
        yield queue.get_nowait()


class _Timer:
    """For all whose next ping is due at about the same moment."""

    __slots__ = ("sockets",)

    def __init__(self) -> None:
        self.sockets: set[SmallSocket] = set()


_timers: dict[tuple[asyncio.AbstractEventLoop, int], _Timer] = {}


def _timer(loop: asyncio.AbstractEventLoop, due: float) -> _Timer:
    """Rings a little early rather than late."""
    moment = max(int(due * _A_SECOND), int(loop.time() * _A_SECOND) + 1)
    if (loop, moment) not in _timers:
        _timers[loop, moment] = _Timer()
        loop.call_at(moment / _A_SECOND, _ring, loop, moment)
    return _timers[loop, moment]


def _ring(loop: asyncio.AbstractEventLoop, moment: int) -> None:
    for each in _timers.pop((loop, moment)).sockets:
        loop.call_soon(each.send_keepalive_ping)
