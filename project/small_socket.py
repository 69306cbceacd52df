"""A WebSocket of uvicorn's that keeps little while it is open.

A connection of uvicorn's has some forty attributes, most of them the same for all, a
queue made of four deques and a timer; and it holds on to all that the handshake was
about. That is 6 KB an open page. Here an open connection has what is its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.protocol import State

from llm.clock import ringing
from project.compact import compact
from project.inbox import Inbox

_HANDSHAKE = {"request", "response", "scope", "server", "client"}
_SHARED = {"app", "app_state", "config", "connections", "default_headers"}
_SHARED |= {"logger", "loop", "tasks"}


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

    # What makes no sense

    def handle_parser_exception(self) -> None:
        """Before the handshake is over there is no way to say why."""
        if self.conn.close_sent is None:
            self.transport.close()
        else:
            super().handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_text(b"".join(self.frames)):
            self.frames = []
            self.conn.fail(CloseCode.INVALID_DATA)
            self.handle_parser_exception()
        else:
            super().send_receive_event_to_app()

    # Keepalive

    def start_keepalive(self) -> None:
        """The handshake is over."""
        super().start_keepalive()
        self.conn.available_extensions = None
        self.request.headers.clear()  # a parser holds on to the request
        compact(self, self.config, shared=_SHARED, without=_HANDSHAKE)

    def schedule_ping(self) -> None:
        assert self.ping_interval is not None
        delay = max(0.0, self.ping_interval - self.last_ping_rtt)
        due: Any = ringing(self.loop, delay)
        due.add(self)
        self.ping_timer = due

    def ring(self) -> None:
        self.send_keepalive_ping()

    def stop_keepalive(self) -> None:
        due: Any = self.ping_timer
        if due is not None:
            due.discard(self)
            self.ping_timer = None
        super().stop_keepalive()


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:  # of which uvicorn would write a traceback
        return False
    return True


def _taken(queue: asyncio.Queue[Any]) -> Iterator[Any]:
    while not queue.empty():
        yield queue.get_nowait()


def answer_bad_handshakes() -> None:
    """uvicorn leaves a handshake that `websockets` refuses unanswered and open. No
    application is asked then, so it is the class itself that learns it."""
    _Bare.handle_events = _handle_events


_Bare: Any = WebSocketsSansIOProtocol
_handle_known_events = _Bare.handle_events
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)


def _handle_events(protocol: Any) -> None:
    _handle_known_events(protocol)
    if protocol.conn.handshake_exc is None or protocol.handshake_initiated:
        return
    # What is too long has an answer; what cannot be read has none.
    told = b"".join(protocol.conn.data_to_send())
    protocol.handshake_complete = protocol.close_sent = True
    protocol.transport.write(told or _BAD_REQUEST)
    protocol.transport.close()
