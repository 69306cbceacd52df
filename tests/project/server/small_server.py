"""A small application under `project.server.uvicorn_server.Server`.

Prints its port, and each hook as it comes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from typing import Any

from conversations.engine.event_log import WRITE_KEY
from llm.wire.websocket_frame import frame
from project.server.uvicorn_server import Hooks, Server

MAX_MESSAGE = 2_000_000  # bytes

draining: list[asyncio.Event] = []  # made on the server's loop


async def start() -> None:
    draining.append(asyncio.Event())
    if "broken" in sys.argv:
        raise RuntimeError("the engine does not start")
    say("start")


async def drain() -> None:
    say("drain")
    if "signalled" in sys.argv:
        os.kill(os.getpid(), signal.SIGTERM)
    if "stuck" in sys.argv:
        await asyncio.Event().wait()
    draining[0].set()


async def close() -> None:
    say("close")


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await _echo(scope["state"][WRITE_KEY], receive, send)
    elif scope["path"] == "/flood":
        await _flood(send)
    elif scope["path"] == "/stream":
        await _stream(scope, receive, send)
    elif scope["path"] == "/body":
        await _send_body_sizes(receive, send)
    elif scope["path"] == "/refuse":
        await _refuse_body(send)
    else:
        await _answer(scope["path"], send)


async def _echo(write: Any, receive: Any, send: Any) -> None:
    """Answers a message that begins with "twice" twice, first directly."""
    assert not write(frame(b"too early"))
    while (event := await receive())["type"] != "websocket.disconnect":
        if event["type"] == "websocket.connect":
            await send({"type": "websocket.accept"})
        else:
            if event["text"].startswith("twice"):
                assert write(frame(event["text"].encode()))
            await send({"type": "websocket.send", "text": event["text"]})
    assert not write(frame(b"too late"))
    say(f"disconnect {event['code']}")


async def _stream(scope: Any, receive: Any, send: Any) -> None:
    """Ends by itself if the query is "?ends", else when the client disconnects."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first ", "more_body": True})
    if scope["query_string"] == b"ends":
        await send({"type": "http.response.body", "body": b"last"})
        return
    await receive()  # the body
    say((await receive())["type"])


async def _send_body_sizes(receive: Any, send: Any) -> None:
    pieces, more = [], True
    while more:
        message = await receive()
        pieces.append(message["body"])
        more = message["more_body"]
    sizes = " ".join(str(len(piece)) for piece in pieces).encode()
    length = (b"content-length", b"%d" % len(sizes))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": sizes})


async def _refuse_body(send: Any) -> None:
    """Answers before the body has come."""
    length = (b"content-length", b"3")
    await send({"type": "http.response.start", "status": 413, "headers": [length]})
    await send({"type": "http.response.body", "body": b"no\n"})


async def _flood(send: Any) -> None:
    """As much as the client's connection takes; then what is left."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    body = {"type": "http.response.body", "body": 1000 * b"x", "more_body": True}
    while True:
        try:
            await asyncio.wait_for(send(body), timeout=0.2)
        except TimeoutError:
            break
    say("full")
    await send(body)
    say("reads again")
    await send({"type": "http.response.body", "body": b"last"})


async def _answer(path: str, send: Any) -> None:
    """/until-drain answers in two pieces, the second one late; /forever never ends."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first ", "more_body": True})
    if path == "/until-drain":
        await draining[0].wait()
    elif path == "/forever":
        await _forever()
    elif path == "/fault":
        raise RuntimeError("a fault in the middle")
    await send({"type": "http.response.body", "body": b"last"})


async def _forever() -> None:
    try:
        await asyncio.Event().wait()
    finally:
        say("cancelled")


def say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    hooks = Hooks(start=start, drain=drain, close=close)
    server = Server(
        application,
        hooks,
        grace=0.1,
        max_message=MAX_MESSAGE,
        ends_at_second_signal="patient" not in sys.argv,
    )
    server.serve_at(listening, lambda: say(f"port {port}"))


if __name__ == "__main__":
    main()
