"""A client that costs little beside the server it measures.

It reads no JSON: it looks for the stamps of `benchmarks.upstream` in the bytes, which
stand as they are in server-sent events and in WebSocket frames.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import Self

import orjson

from benchmarks.upstream import STAMP

_LONGEST_STAMP = 18  # bytes
_TOLD_AGAIN = b"output_text.done"  # from here on the text comes once more, whole
_QUEUED = re.compile(rb'"type":\s*"parley:turn\.queued",\s*"turn":\s*"(\w+)"')
_KEY = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"


class Refused(Exception):
    """The server did not answer as it should."""


@dataclass(slots=True)
class Answer:
    """What was seen of one answer; times are seconds."""

    asked_at: float = field(default_factory=time.monotonic)
    ttft: float | None = None
    total: float = 0.0
    lags: list[float] = field(default_factory=list)
    _tail: bytes = b""
    _again: bool = False

    @property
    def provider_began(self) -> float:
        """When the upstream wrote its first word, by the clock of all processes."""
        assert self.ttft is not None, "something was said"
        return self.asked_at + self.ttft - self.lags[0]

    def saw(self, data: bytes) -> bytes:
        """Count the stamps. Returns the bytes, with the end of those before."""
        now, data = time.monotonic(), self._tail + data
        told, again, _ = data.partition(_TOLD_AGAIN)
        end = 0
        for match in STAMP.finditer(told) if not self._again else ():
            self.lags.append(now - int(match[1]) / 1e6)
            end = match.end()
        if self.lags and self.ttft is None:
            self.ttft = now - self.asked_at
        self.total = now - self.asked_at
        self._again = self._again or bool(again)
        self._tail = data[max(end, len(data) - _LONGEST_STAMP) :]
        return data


class Connection:
    """One kept connection. Use it inside `async with`."""

    def __init__(self, port: int, headers: dict[str, str] | None = None) -> None:
        self._port = port
        self._headers = {"Host": f"127.0.0.1:{port}", **(headers or {})}

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=2**20
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._writer.close()

    def _send_head(self, method: str, path: str, more: bytes) -> None:
        lines = "".join(f"{name}: {text}\r\n" for name, text in self._headers.items())
        head = f"{method} {path} HTTP/1.1\r\n{lines}"
        self._writer.write(head.encode() + more)

    async def _read_head(self, status: bytes) -> bytes:
        head = await self._reader.readuntil(b"\r\n\r\n")
        if head.split(b" ", 2)[1] != status:
            raise Refused(head.partition(b"\r\n")[0].decode())
        return head.lower()


class Http(Connection):
    async def post(
        self, path: str, body: dict[str, object], *, status: bytes = b"200"
    ) -> Answer:
        """One request, read to the end of its answer, be it a stream or not."""
        answer, sent = Answer(), orjson.dumps(body)
        length = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._send_head("POST", path, length % len(sent) + sent)
        head = await self._read_head(status)
        if b"transfer-encoding: chunked" in head:
            while not answer.saw(await self._read()).endswith(b"0\r\n\r\n"):
                pass
        else:
            size = int(head.partition(b"content-length:")[2].split(b"\r")[0])
            answer.saw(await self._reader.readexactly(size))
        return answer

    async def _read(self) -> bytes:
        if not (data := await self._reader.read(2**16)):
            raise Refused("The server hung up.")
        return data


class Socket(Http):
    """A WebSocket of one conversation."""

    def __init__(self, port: int, conversation: str, cookie: str) -> None:
        super().__init__(port, {"Cookie": cookie, "Origin": f"http://127.0.0.1:{port}"})
        self._path = f"/ws/conversations/{conversation}/"

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
        self._send_head("GET", self._path, upgrade + _KEY + b"\r\n")
        await self._read_head(b"101")
        return self

    async def turn(self, model: str, text: str) -> Answer:
        """Begin a turn and read it to its end."""
        answer = Answer()
        self._send_text(
            orjson.dumps({"type": "turn.create", "input": text, "model": model})
        )
        return await self._told(answer)

    async def follow(self) -> Answer:
        """The next turn that somebody else begins in the conversation, to its end."""
        answer, seen = Answer(), b""
        while not (queued := _QUEUED.search(seen)):
            seen += await self._read()
        self._send_text(
            orjson.dumps({"type": "turn.follow", "turn": queued[1].decode()})
        )
        return await self._told(answer)

    async def _told(self, answer: Answer) -> Answer:
        """Read to the frame that ends the turn; nothing comes after it."""
        seen, ended = b"", False
        while not (ended and seen.endswith(b'"}')):
            seen = answer.saw(await self._read())
            ended = ended or b'"type":"response.completed"' in seen
        return answer

    def _send_text(self, data: bytes) -> None:
        assert len(data) < 2**16
        short = len(data) < 126
        length = (
            bytes([128 + len(data)]) if short else b"\xfe%c%c" % divmod(len(data), 256)
        )
        self._writer.write(b"\x81" + length + bytes(4) + data)  # masked with zeros
