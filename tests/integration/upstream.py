"""A provider for tests: each message sets how far its answer gets."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
DONE = b"data: [DONE]\n\n"
SPOKEN_TEXT = "One two three"
USED = 12  # tokens of an answer that calls a tool
COUNT = re.compile(r"count to (\d+) in (\d+) s\b")


def chunk(finish: str | None = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %s\n\n" % json.dumps({"id": "c", "choices": [choice]}).encode()


def usage(total: int) -> bytes:
    tokens = {"prompt_tokens": total - 2, "completion_tokens": 2, "total_tokens": total}
    return b"data: %s\n\n" % json.dumps({"choices": [], "usage": tokens}).encode()


def call(name: str, arguments: str = "{}") -> bytes:
    function = {"name": name, "arguments": arguments}
    return chunk(tool_calls=[{"index": 0, "id": "call_1", "function": function}])


def calling(name: str) -> list[bytes]:
    return [HEAD, call(name), chunk("tool_calls"), usage(USED), DONE]


START = chunk(role="assistant", content="")
#: The bytes sent for each message; then the connection is held until it is closed.
PARTS: dict[str, list[bytes]] = {
    "before headers": [],
    "before the first delta": [HEAD, START],
    "in text": [HEAD, START, chunk(content=SPOKEN_TEXT)],
    "in arguments": [HEAD, START, call("hang", '{"x')],
    "in a blocking tool": calling("hang"),
    "in the second step": calling("ready"),
    "in a background call": calling("hang_later"),
    "awaiting approval": calling("guarded"),
    "a large result": calling("large"),
}
TOGETHER = "together"  # begin the answer, end it once all `parties` have begun
ANSWER = [HEAD, chunk(content="Done."), chunk("stop"), DONE]


class Upstream:
    """Listens while it is entered.

    `request_count` counts requests; `closed` is the time at which a held connection was
    closed (seconds, monotonic).
    """

    def __init__(self, port: int, parties: int = 1) -> None:
        self.port = port
        self._begun = asyncio.Barrier(parties)
        self.begun = asyncio.Event()  # all parties have
        self.request_count = 0
        self.held = asyncio.Event()
        self.closed: asyncio.Queue[float] = asyncio.Queue()
        self._counted: dict[str, int] = {}  # how far, by message

    async def __aenter__(self) -> Upstream:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, backlog=500
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()

    def counted_to(self, wish: str) -> int:
        return self._counted.get(wish, 0)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            body = await _body(reader)
            self.request_count += 1
            if wish := COUNT.match(_text(body["messages"][-1])):
                if TOGETHER in wish.string:
                    await self._begun.wait()
                    self.begun.set()
                await self._count(writer, wish.string, int(wish[1]), float(wish[2]))
                return
            reply = _reply_to(body)
            if reply is ANSWER and _is_together(body):
                writer.write(reply[0] + START)
                await self._begun.wait()
                reply = reply[1:]
            writer.writelines(reply)
            await writer.drain()
            if reply and reply[-1] == DONE:
                return
            self.held.set()
            while await reader.read(1000):
                pass
            self.closed.put_nowait(time.monotonic())
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed.put_nowait(time.monotonic())
        finally:
            writer.close()

    async def _count(
        self, writer: asyncio.StreamWriter, wish: str, number: int, seconds: float
    ) -> None:
        """A number a delta. The numbers of an earlier attempt are repeated, without
        pauses."""
        loop = asyncio.get_running_loop()
        begun, before = loop.time(), self._counted.get(wish, 0)
        writer.write(HEAD + START)
        for n in range(1, number + 1):
            due = begun + (n - before) * seconds / number
            if n > before and (pause := due - loop.time()) > 0:
                await writer.drain()
                await asyncio.sleep(pause)
            if writer.is_closing():
                return
            writer.write(chunk(content=f"{n} " if n < number else str(n)))
            self._counted[wish] = max(n, self._counted.get(wish, 0))
        writer.write(chunk("stop") + DONE)
        await writer.drain()


def counted(number: int) -> str:
    """What `count to <number> in 60 s` is answered."""
    return " ".join(map(str, range(1, number + 1)))


async def _body(reader: asyncio.StreamReader) -> Any:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
    return json.loads(await reader.readexactly(int(fields["content-length"])))


def _reply_to(body: Any) -> list[bytes]:
    """The answer to the latest message, or to the output of its tool."""
    spoken = [m for m in body["messages"] if m["role"] in ("user", "tool")]
    wish = next((m for m in spoken if _text(m) in PARTS), None)
    if wish is None:
        return ANSWER
    latest = spoken[-1]
    if latest is wish:
        return PARTS[_text(wish)]
    return [] if _text(wish) == "in the second step" else ANSWER


def _is_together(body: Any) -> bool:
    return _text(body["messages"][-1]) == TOGETHER


def _text(message: Any) -> str:
    content = message["content"]
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    return str(content or "")
