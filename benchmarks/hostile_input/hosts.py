"""Hosts that send hostile input: an HTTP server process, and MCP over pipes.

`python -m benchmarks.hostile_input.hosts NAME` is the MCP server over pipes.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.hostile_input.answers import ANSWERS

MEGABYTE = 1024 * 1024
SIZE = 20 * MEGABYTE
FEW = 370_000  # bytes of arrays, just below the limit of parsed values


def filled(unit: bytes, size: int = SIZE) -> bytes:
    return unit * (size // len(unit))


def values(size: int = SIZE) -> bytes:
    """JSON of at most `size` bytes, nearly all of them arrays."""
    return b"[%b0]" % filled(b"[],", size - 3)


def deep(size: int = SIZE) -> bytes:
    return b"[" * (size // 2) + b"]" * (size // 2)


def text(size: int = SIZE) -> bytes:
    return b'{"a":"%b"}' % filled(b"x", size - 8)


def calls(size: int, count: int) -> bytes:
    """Chat Completions events with `count` tool calls each."""
    events, number = [], 0
    while sum(map(len, events)) < size:
        tool_calls = []
        for _ in range(count):
            number += 1
            tool_calls.append(
                b'{"index":%d,"id":"c%d","function":{"name":"f"}}' % (number, number)
            )
        event = b'{"choices":[{"delta":{"tool_calls":[%b]}}]}' % b",".join(tool_calls)
        events.append(b"data: %b\n\n" % event)
    return b"".join(events)


_TYPES = {"html": "text/html", "json": "application/json", "sse": "text/event-stream"}
_CHUNK = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
_PIECES = (  # of a call's arguments
    b'data: {"choices":[{"delta":{"tool_calls":[%b]}}]}\n\n'
    % b",".join(
        [b'{"index":0,"id":"c","function":{"name":"f","arguments":"1"}}'] * 3000
    )
)
_END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
#: By name: status, type and body.
BODIES: dict[str, tuple[int, str, Callable[[], bytes]]] = {
    "error-tags": (500, "html", lambda: b"<html>" + filled(b"<script>")),
    "error-open": (500, "html", lambda: filled(b"<")),
    "error-json": (500, "json", lambda: b'{"error":%b}' % values()),
    "error-words": (500, "json", lambda: filled(b"try again in 1")),
    "values": (200, "json", values),
    "deep": (200, "json", deep),
    "text": (200, "json", text),
    "line": (200, "sse", lambda: b"data: " + filled(b"[],") + b"\n\n"),
    "events": (200, "sse", lambda: filled(_CHUNK) + _END),
    "blank": (200, "sse", lambda: filled(b"data: {}\n\n") + _END),
    "lines": (200, "sse", lambda: filled(b"data: 1\n") + b"\n"),
    "fields": (200, "sse", lambda: filled(b":\n") + _END),
    "calls": (200, "sse", lambda: calls(2 * MEGABYTE, 4_000) + _END),
    "pieces": (200, "sse", lambda: filled(_PIECES) + _END),
    "short": (200, "sse", lambda: _CHUNK + _END),
    "tool-values": (200, "json", lambda: values(MEGABYTE)),
    "tool-few": (200, "json", lambda: values(FEW)),
    "tool-deep": (200, "json", lambda: deep(MEGABYTE)),
    "tool-html": (200, "html", lambda: filled(b"<script>", MEGABYTE)),
    "tool-open": (200, "html", lambda: filled(b"<", MEGABYTE)),
    "tool-error": (500, "html", lambda: filled(b"<script>", MEGABYTE)),
    "tool-long": (200, "html", lambda: filled(b"<script>")),
    **{name: (200, "sse", body) for name, body in ANSWERS.items()},
}


def serve(port: Any) -> None:
    asyncio.run(_listen(port))


async def _listen(port: Any) -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    port.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        sizes = [
            int(line.split(":")[1])
            for line in head.lower().splitlines()
            if line.startswith("content-length:")
        ]
        body = await reader.readexactly(sizes[0]) if sizes else b""
        name = head.split()[1].split("/")[1]
        writer.write(_mcp(name, body) if name.startswith("mcp") else _body(name))
        await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # the reader closed the connection
    finally:
        writer.close()


def _body(name: str) -> bytes:
    if name == "packed":  # 2 MB that expand to 2 GB
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        packed = gzip.compress(filled(b"\n")) * 100
        length = b"Content-Length: %d\r\n" % len(packed)
        return head + length + b"Content-Encoding: gzip\r\n\r\n" + packed
    if name == "headers":
        return b"HTTP/1.1 200 OK\r\n" + filled(b"a: b\r\n") + b"\r\n"
    status, kind, body = BODIES[name]
    return _message(status, _TYPES[kind], body())


def _message(status: int, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


# MCP

#: Results of tool calls, by name.
_RESULTS: dict[str, Callable[[], bytes]] = {
    "values": lambda: _structured(values(SIZE - 1000)),
    "few": lambda: _structured(values(FEW)),
    "text": lambda: _text_result(SIZE - 1000),
    "most": lambda: _text_result(8 * MEGABYTE - 1000),
    "small": lambda: _text_result(MEGABYTE),
    "none": lambda: _text_result(1),
}
_NOTE = b'{"jsonrpc":"2.0","method":"a"}'


def _structured(value: bytes) -> bytes:
    return b'{"content":[],"structuredContent":{"a":%b}}' % value


def _text_result(size: int) -> bytes:
    return b'{"content":[{"type":"text","text":"%b"}]}' % filled(b"x", size)


def _reply(message: dict[str, Any], name: str) -> bytes:
    """The reply to a request, or b"" for a notification."""
    match message.get("method"):
        case "initialize":
            result = b'{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},'
            result += b'"serverInfo":{"name":"h","version":"1"}}'
        case "tools/list":
            result = b'{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}'
        case "tools/call":
            result = _RESULTS.get(name, _RESULTS["none"])()
        case _ if "id" in message:
            error = b'{"code":-32601,"message":"unknown"}'
            return b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (message["id"], error)
        case _:
            return b""
    return b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (message["id"], result)


def _mcp(name: str, body: bytes) -> bytes:
    message = json.loads(body or b"{}")
    _, _, name = name.partition("-")
    name, _, transport = name.partition("-")
    if not (reply := _reply(message, name)):
        return _message(202, "text/plain", b"")
    if transport == "sse":
        before = b""
        if name == "notes" and message["method"] == "tools/call":
            before = filled(b"data: %b\n\n" % _NOTE)
        return _message(200, _TYPES["sse"], before + b"data: %b\n\n" % reply)
    return _message(200, _TYPES["json"], reply)


def speak(name: str) -> None:
    """Serve MCP over stdin and stdout, one message per line."""
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            if name == "notes":
                out.write(filled(_NOTE + b"\n"))
            while name == "endless":
                out.write(b"x" * MEGABYTE)
            if name == "blank":
                out.write(filled(b"\n"))
        if reply := _reply(message, name):
            out.write(reply + b"\n")
        out.flush()


if __name__ == "__main__":
    try:
        speak(sys.argv[1])
    except BrokenPipeError:
        sys.exit(0)
