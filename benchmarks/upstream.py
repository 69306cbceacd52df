"""Mock provider of little CPU: Chat Completions at a given pace.

`bench-c200-d20` answers with 200 chunks, 20 ms apart; `-d0` writes them all at once.
With `-r3` it calls the tool `add` until three calls have been answered.
Each chunk carries the time at which it was written, on the monotonic clock that all
processes of a machine share, so a client can compute its lag.

    python -m benchmarks.upstream PORT
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import Any

import orjson

from benchmarks.streams import openai_chat, openai_chat_call

STAMP = re.compile(rb"@(\d{16})@")  # microseconds
_MODEL = re.compile(r"bench-c(\d+)-d(\d+)(?:-r(\d+))?")
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
_HEAD += b"Transfer-Encoding: chunked\r\n\r\n"


def stamp() -> bytes:
    return b"@%016d@" % (time.monotonic_ns() // 1000)


class Answering(asyncio.Protocol):
    """One connection, which answers one request at a time."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._received = b""
        self._answer: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        if body := _body_of(self._received):
            self._received = b""
            self._answer = asyncio.ensure_future(self._stream(orjson.loads(body)))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer:
            self._answer.cancel()

    async def _stream(self, request: dict[str, Any]) -> None:
        match = _MODEL.fullmatch(request["model"])
        assert match, "a model such as bench-c200-d20"
        chunks, pause = int(match[1]), int(match[2]) / 1000
        done = sum(each["role"] == "tool" for each in request["messages"])
        if done < int(match[3] or 0):
            calling = b"".join(_chunk(frame) for frame in openai_chat_call(done))
            self._transport.write(_HEAD + calling + b"0\r\n\r\n")
            return
        if not request.get("stream"):
            self._transport.write(_whole(chunks))
            return
        first, frame, *ending = openai_chat(1)
        before, _, after = frame.partition(b'"The"')
        self._transport.write(_HEAD + _chunk(first))
        due = asyncio.get_running_loop().time()
        for _ in range(chunks):
            self._transport.write(_chunk(b'%b" word %b"%b' % (before, stamp(), after)))
            if pause:
                due += pause
                await asyncio.sleep(due - asyncio.get_running_loop().time())
        self._transport.write(_chunk(b"".join(ending)) + b"0\r\n\r\n")


def _body_of(request: bytes) -> bytes:
    """The body of a complete request, else b""."""
    head, _, body = request.partition(b"\r\n\r\n")
    if length := re.search(rb"(?i)content-length: *(\d+)", head):
        return body if len(body) >= int(length[1]) else b""
    if not body.endswith(b"0\r\n\r\n"):
        return b""
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        whole += rest[: int(size, 16)]
        body = rest[int(size, 16) + 2 :]
    return whole


def _whole(chunks: int) -> bytes:
    text = "".join(f" word {stamp().decode()}" for _ in range(chunks))
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 9, "completion_tokens": chunks, "total_tokens": 9}
    usage["total_tokens"] += chunks
    answer = {"id": "chatcmpl-bench", "object": "chat.completion", "created": 1}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = orjson.dumps({**answer, "choices": [choice], "usage": usage})
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def main(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Answering, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
