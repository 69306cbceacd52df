"""Frames that are written directly, through real connections of uvicorn."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from conversations.engine import WRITE_KEY
from llm.wire.websocket_frame import frame
from project.server.direct_write import DirectWriteProtocol

MEGABYTE = 1024 * 1024


class App:
    """Calls `act` with the direct `write` of each connection."""

    def __init__(self) -> None:
        self.act: Callable[[Any, Any, Any], Any]
        self.done = threading.Event()
        self.found: list[Any] = []
        self.server: uvicorn.Server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        write = scope.get("state", {}).get(WRITE_KEY)
        await receive()
        try:
            await self.act(write, receive, send)
        finally:
            self.done.set()


@pytest.fixture
def served() -> Iterator[Callable[..., tuple[App, int]]]:
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(**options: Any) -> tuple[App, int]:
        app = App()
        options = {"ws": DirectWriteProtocol, "lifespan": "off", **options}
        config = uvicorn.Config(app, interface="asgi3", log_level="error", **options)
        server = app.server = uvicorn.Server(config)
        listening = socket.create_server(("127.0.0.1", 0))
        port = int(listening.getsockname()[1])
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        servers.append((server, thread))
        return app, port

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join()


Served = Callable[..., tuple[App, int]]


def test_frames_and_messages_come_in_the_order_they_were_sent(served: Served):
    app, port = served()

    async def act(write: Any, receive: Any, send: Any) -> None:
        app.found.append(write(frame(b"too early")))
        await send({"type": "websocket.accept"})
        app.found.append(write(frame("ä".encode()) + frame(b"two")))
        await send({"type": "websocket.send", "text": "three"})
        app.found.append(write(frame(b"four")))
        await send({"type": "websocket.close"})
        app.found.append(write(frame(b"too late")))

    app.act = act
    with connect(f"ws://127.0.0.1:{port}/") as websocket:
        assert list(websocket) == ["ä", "two", "three", "four"]
    assert app.done.wait(10)
    assert app.found == [False, True, True, False]


def test_frames_are_written_where_a_client_has_agreed_on_compression(served: Served):
    app, port = served()

    async def act(write: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        app.found.append(write(frame(b"as it is")))
        await send({"type": "websocket.send", "text": 9 * "again "})

    app.act = act
    with connect(f"ws://127.0.0.1:{port}/", compression="deflate") as websocket:
        assert [websocket.recv(), websocket.recv()] == ["as it is", 9 * "again "]
    assert app.found == [True]


def test_another_protocol_has_no_direct_write(served: Served):
    app, port = served(ws="websockets-sansio")

    async def act(write: Any, receive: Any, send: Any) -> None:
        app.found.append(write)
        await send({"type": "websocket.close"})

    app.act = act
    with pytest.raises(InvalidStatus, match="403"), connect(f"ws://127.0.0.1:{port}/"):
        pass
    assert app.found == [None]


def test_a_slow_reader_pauses_the_writer_and_misses_nothing(served: Served):
    app, port = served()
    piece = "x" * MEGABYTE

    async def act(write: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        while write(frame(piece.encode())):
            app.found.append(piece)
        app.done.set()
        await send({"type": "websocket.send", "text": "last"})
        await send({"type": "websocket.close"})

    app.act = act
    with connect(f"ws://127.0.0.1:{port}/", max_size=None) as websocket:
        assert app.done.wait(10)
        *pieces, last = list(websocket)
        assert (pieces, last) == (app.found, "last")


def test_a_disconnected_client_receives_no_more(served: Served):
    app, port = served()

    async def act(write: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        app.found.append((await receive())["type"])
        app.found.append(write(frame(b"anybody there?")))

    app.act = act
    with connect(f"ws://127.0.0.1:{port}/") as websocket:
        websocket.socket.shutdown(socket.SHUT_RDWR)
    assert app.done.wait(10)
    assert app.found == ["websocket.disconnect", False]


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"X: " + 9000 * b"x" + b"\r\n\r\n", 431),
        (b"".join(b"X-%d: x\r\n" % n for n in range(140)) + b"\r\n", 431),
        (b"Content-Length: 3\r\n\r\nabc", 400),
        (b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    ],
    ids=["long", "many", "body", "chunks"],
)
def test_a_handshake_that_cannot_be_read_is_answered(
    served: Served, more: bytes, status: int
):
    _, port = served()
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    head += b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    head += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head + more)
        reply = b"".join(iter(lambda: connection.recv(65536), b""))
    assert reply.startswith(b"HTTP/1.1 %d " % status)
