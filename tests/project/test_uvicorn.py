"""The ways past uvicorn, through real connections of it."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import ConnectionClosedError
from websockets.sync.client import connect

from conversations.engine import WRITE
from llm.wire.websocket import frame
from project.small_socket import answer_bad_handshakes
from project.uvicorn import with_write

MEGABYTE = 1024 * 1024


class App:
    """Does over each connection what `act` says, with a way past uvicorn or None."""

    def __init__(self) -> None:
        self.act: Callable[[Any, Any, Any], Any]
        self.done = threading.Event()
        self.found: list[Any] = []
        self.server: uvicorn.Server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        write = with_write(scope, send).get("extensions", {}).get(WRITE)
        await receive()
        try:
            await self.act(write, receive, send)
        finally:
            self.done.set()


@pytest.fixture(params=["httptools", "h11"])
def http(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def served() -> Iterator[Callable[..., tuple[App, int]]]:
    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(**options: Any) -> tuple[App, int]:
        app = App()
        config = uvicorn.Config(app, log_level="error", lifespan="off", **options)
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
    app, port = served(ws="websockets-sansio")

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


def test_nothing_is_compressed_whatever_a_client_offers(served: Served):
    app, port = served(ws="websockets-sansio")

    async def act(write: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": (await receive())["text"] * 9})

    app.act = act
    with connect(f"ws://127.0.0.1:{port}/", compression="deflate") as websocket:
        assert websocket.protocol.extensions == []
        websocket.send("again ")
        assert websocket.recv() == "again " * 9


def test_who_reads_slowly_is_written_no_more_and_misses_nothing(served: Served):
    app, port = served(ws="websockets-sansio")
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


def test_who_has_left_is_written_no_more(served: Served):
    app, port = served(ws="websockets-sansio")

    async def act(write: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        app.found.append((await receive())["type"])
        app.found.append(write(frame(b"anybody there?")))

    app.act = act
    with connect(f"ws://127.0.0.1:{port}/") as websocket:
        websocket.socket.shutdown(socket.SHUT_RDWR)
    assert app.done.wait(10)
    assert app.found == ["websocket.disconnect", False]


async def _echo(write: Any, receive: Any, send: Any) -> None:
    await send({"type": "websocket.accept"})
    while (event := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": event["text"]})


def test_messages_that_come_together_are_heard_in_their_order(served: Served):
    app, port = served(ws="websockets-sansio")
    app.act = _echo
    said = [str(number) for number in range(100)]
    with connect(f"ws://127.0.0.1:{port}/") as websocket:
        for message in said:
            websocket.send(message)
        assert [websocket.recv() for _ in said] == said


def test_who_answers_pings_stays_and_who_does_not_is_let_go(served: Served):
    app, port = served(
        ws="websockets-sansio", ws_ping_interval=0.01, ws_ping_timeout=0.5
    )
    app.act = _echo
    pings: list[bytes] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        told = connection.makefile("rb")
        while told.readline() != b"\r\n":
            pass
        while (head := told.read(2)) == b"\x89\x04":
            pings.append(told.read(4))
            if len(pings) < 3:  # masked with nothing
                connection.sendall(b"\x8a\x84" + bytes(4) + pings[-1])
        assert head[0] == 0x88
        assert told.read(2) == (1011).to_bytes(2)
    assert len(pings) == 3


def test_who_is_there_when_the_server_goes_is_told_to_come_again(served: Served):
    app, port = served(ws="websockets-sansio")
    app.act = _echo
    with connect(f"ws://127.0.0.1:{port}/") as websocket:
        websocket.send("there?")
        assert websocket.recv() == "there?"
        app.server.should_exit = True
        with pytest.raises(ConnectionClosedError, match="1012"):
            websocket.recv()
    assert app.done.wait(10)


_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
_NO_TEXT = b"\x81\x81" + bytes(4) + b"\xff"  # masked with nothing
_NO_FRAME = b"\xf1\x80" + bytes(4)


@pytest.mark.parametrize(
    ("sent", "code"), [(_NO_TEXT, 1007), (_NO_FRAME, 1002)], ids=["text", "frame"]
)
@pytest.mark.parametrize("is_early", [True, False])
def test_what_makes_no_sense_ends_a_connection_and_is_no_fault(
    served: Served,
    caplog: Any,
    monkeypatch: pytest.MonkeyPatch,
    sent: bytes,
    code: int,
    is_early: bool,
):
    app, port = served(ws="websockets-sansio")
    log = logging.getLogger("uvicorn.error")  # tells no logger of ours
    monkeypatch.setattr(log, "handlers", [caplog.handler])
    begun, ended = threading.Event(), threading.Event()

    async def act(write: Any, receive: Any, send: Any) -> None:
        if is_early:
            begun.set()
            assert (await receive())["type"] == "websocket.disconnect"
        else:
            await send({"type": "websocket.accept"})
            app.found.append(await receive())
        ended.set()

    app.act = act
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(_HANDSHAKE)
        told = connection.makefile("rb")
        if is_early:
            assert begun.wait(10)
        else:
            while told.readline() != b"\r\n":
                pass
        connection.sendall(sent)
        last = told.read()
    assert ended.wait(10)
    if is_early:
        assert last == b""
    else:
        assert last[2:4] == code.to_bytes(2)
        assert app.found[0]["type"] == "websocket.disconnect"
    assert not caplog.records


def test_an_open_connection_keeps_only_what_is_its_own(served: Served):
    app, port = served(ws="websockets-sansio")

    async def act(write: Any, receive: Any, send: Any) -> None:
        await send({"type": "websocket.accept"})
        app.found.append(set(vars(write.__self__)))
        await send({"type": "websocket.close"})

    app.act = act
    with connect(f"ws://127.0.0.1:{port}/") as websocket:
        assert list(websocket) == []
    with connect(f"ws://127.0.0.1:{port}/") as websocket:
        assert list(websocket) == []
    own = {"transport", "conn", "queue", "frames", "ping_timer"}
    assert app.found == [own, own]


def test_chunks_and_messages_come_in_the_order_they_were_sent(
    served: Served, http: str
):
    app, port = served(http=http)

    async def act(write: Any, receive: Any, send: Any) -> None:
        write = write or (lambda data: False)
        app.found.append(write(b"3\r\none\r\n"))
        await send({"type": "http.response.start", "status": 200})
        if not write(b"3\r\none\r\n3\r\ntwo\r\n"):
            app.found.append(False)
            body = {"type": "http.response.body", "body": b"onetwo"}
            await send({**body, "more_body": True})
        await send({"type": "http.response.body", "body": b"three"})
        app.found.append(write(b"4\r\nfour\r\n"))

    app.act = act
    assert httpx.get(f"http://127.0.0.1:{port}/").text == "onetwothree"
    assert app.done.wait(10)
    # h11 has no such way and is sent messages.
    assert app.found == [False] * (2 if http == "httptools" else 3)


def test_an_answers_hang_up_is_told_and_its_end_is_not(served: Served):
    app, port = served(http="httptools")

    class Seen:
        def __init__(self) -> None:
            self.told = asyncio.Event()

    async def act(write: Any, receive: Any, send: Any) -> None:
        gone, seen = write.__self__.watch, Seen()
        gone(seen.told.set)
        await send({"type": "http.response.start", "status": 200})
        assert write(b"3\r\none\r\n")
        app.found.append(set(send.__self__.scope))
        if len(app.found) == 1:
            await seen.told.wait()
            again = Seen()
            gone(again.told.set)
            app.found.append((again.told.is_set(), (await receive())["type"]))
        else:
            await send({"type": "http.response.body", "body": b"two"})
            app.found.append(seen.told.is_set())

    app.act = act
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    assert app.done.wait(10)
    app.done.clear()
    assert httpx.get(f"http://127.0.0.1:{port}/").text == "onetwo"
    assert app.done.wait(10)
    gone = (True, "http.disconnect")
    assert app.found == [{"method"}, gone, {"method"}, False]


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"4")]])
def test_an_answer_that_is_not_sent_in_chunks_is_left_to_uvicorn(
    served: Served, headers: list[tuple[bytes, bytes]]
):
    app, port = served(http="httptools")

    async def act(write: Any, receive: Any, send: Any) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": headers}
        await send(start)
        app.found.append(write(b"4\r\nbody\r\n"))
        await send({"type": "http.response.body", "body": b"body"})

    app.act = act
    ask = httpx.get if headers else httpx.head
    assert ask(f"http://127.0.0.1:{port}/").text == ("body" if headers else "")
    assert app.found == [False]


def test_requests_that_come_together_are_answered_in_their_order(
    served: Served, http: str
):
    app, port = served(http=http)

    async def act(write: Any, receive: Any, send: Any) -> None:
        app.found.append(len(app.found))
        number = b"%d" % len(app.found)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": number, "more_body": True})
        await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})

    app.act = act
    asked = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        last = asked + b"Connection: close\r\n\r\n"
        connection.sendall((asked + b"\r\n") * 3 + last)
        told = b"".join(iter(lambda: connection.recv(65536), b""))
    assert re.findall(rb"\r\n1\r\n(\d)\r\n", told) == [b"1", b"2", b"3", b"4"]


def test_another_server_is_left_as_it_is():
    async def send(message: Any) -> None:
        await asyncio.sleep(0)

    scope = {"type": "websocket"}
    assert with_write(scope, send) is scope


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
    served: Served, monkeypatch: pytest.MonkeyPatch, more: bytes, status: int
):
    bare = WebSocketsSansIOProtocol
    monkeypatch.setattr(bare, "handle_events", bare.handle_events)  # put back after
    answer_bad_handshakes()
    _, port = served(ws="websockets-sansio")
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    head += b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    head += b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(head + more)
        told = b"".join(iter(lambda: connection.recv(65536), b""))
    assert told.startswith(b"HTTP/1.1 %d " % status)
