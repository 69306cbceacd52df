"""A server of a few lines under `project.server.Server`, for test_server.py.

Prints its port, and each hook as it comes.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

from conversations.engine import WRITE
from conversations.sse import GONE
from llm.wire.websocket import frame
from project.server import Hooks, Server

MAX_BODY = 300_000  # bytes

draining: list[asyncio.Event] = []  # made on the server's loop


async def start() -> None:
    draining.append(asyncio.Event())
    if "broken" in sys.argv:
        raise RuntimeError("the engine does not start")
    say("start")


async def drain() -> None:
    say("drain")
    if "stuck" in sys.argv:
        await asyncio.Event().wait()
    draining[0].set()


async def close() -> None:
    say("close")


async def application(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await _echo(scope["extensions"][WRITE], receive, send)
    elif scope["path"] == "/flood":
        await _flood(scope["extensions"][WRITE], send)
    elif scope["path"] == "/at-once":
        await _answer_at_once(scope["extensions"][WRITE], send)
    elif scope["path"] == "/stream":
        await _stream(scope, receive, send)
    elif scope["path"] == "/body":
        await _tell_body(receive, send)
    else:
        await _answer(scope["path"], send)


async def _echo(write: Any, receive: Any, send: Any) -> None:
    """What begins with "twice" comes twice, first at once."""
    while (event := await receive())["type"] != "websocket.disconnect":
        if event["type"] == "websocket.connect":
            await send({"type": "websocket.accept"})
        else:
            if event["text"] == "what is kept":
                kept = sorted(vars(write.__self__))
                await send({"type": "websocket.send", "text": " ".join(kept)})
                continue
            if event["text"].startswith("twice"):
                assert write(frame(event["text"].encode()))
            await send({"type": "websocket.send", "text": event["text"]})
    assert not write(frame(b"too late"))
    say(f"disconnect {event['code']}")


async def _answer_at_once(write: Any, send: Any) -> None:
    assert not write(b"9\r\ntoo early\r\n")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first ", "more_body": True})
    for _ in range(100):
        assert write(b"c8\r\n" + 100 * b"x " + b"\r\n")
    await send({"type": "http.response.body", "body": b"last"})
    assert not write(b"8\r\ntoo late\r\n")


async def _stream(scope: Any, receive: Any, send: Any) -> None:
    """Tells what is kept of the request meanwhile, and ends with the caller, or with
    its own last word where "?ends" is asked for."""
    write, gone = scope["extensions"][WRITE], asyncio.Event()
    scope["extensions"][GONE](gone.set)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first ", "more_body": True})
    is_told = write(b"5\r\ntold \r\n")
    request = write.__self__
    if is_told:
        kept = " ".join(sorted(vars(request)))
        say(f"request: {kept}")
        kept = " ".join(sorted(vars(request.channel)))
        say(f"channel: {kept}")
    if scope["query_string"] != b"ends":
        await gone.wait()
        again = asyncio.Event()
        scope["extensions"][GONE](again.set)
        await receive()  # the body
        say(f"gone {again.is_set()} {(await receive())['type']} {write(b'late')}")
    else:
        await send({"type": "http.response.body", "body": b"last"})
        say(f"ended {gone.is_set()}")


async def _tell_body(receive: Any, send: Any) -> None:
    pieces, more = [], True
    while more:
        message = await receive()
        pieces.append(message["body"])
        more = message["more_body"]
    told = " ".join(str(len(piece)) for piece in pieces).encode()
    length = (b"content-length", b"%d" % len(told))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": told})


async def _flood(write: Any, send: Any) -> None:
    """As much as the caller's connection takes, both ways; then what is left."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    piece, chunk = 1000 * b"x", b"3e8\r\n" + 1000 * b"x" + b"\r\n"
    body = {"type": "http.response.body", "body": piece, "more_body": True}
    while True:
        try:
            await asyncio.wait_for(send(body), timeout=0.2)
        except TimeoutError:
            break
    assert not write(chunk)
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
    server = Server(application, listening, hooks, grace=0.1, max_body=MAX_BODY)
    server.serve(lambda: say(f"port {port}"))


if __name__ == "__main__":
    main()
