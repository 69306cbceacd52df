"""HTTP and WebSocket load client that parses no JSON.

It searches the received bytes for the time stamps that `benchmarks.upstream` writes;
they are the same bytes in server-sent events and in WebSocket frames.
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
_REPEATED_TEXT = b"output_text.done"  # the whole text follows a second time
_QUEUED = re.compile(rb'"type":\s*"parley:turn\.queued",\s*"turn":\s*"(\w+)"')
_KEY = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"


class RequestFailed(Exception):
    """The server refused the request or broke off its answer."""


@dataclass(slots=True)
class Answer:
    """Times of one answer, in seconds."""

    sent_at: float = field(default_factory=time.monotonic)
    ttft: float | None = None
    total: float = 0.0
    lags: list[float] = field(default_factory=list)
    _tail: bytes = b""
    _is_repeated: bool = False

    @property
    def provider_began(self) -> float:
        """When the provider wrote its first word, on the machine's monotonic clock."""
        assert self.ttft is not None, "the answer is empty"
        return self.sent_at + self.ttft - self.lags[0]

    def record(self, data: bytes) -> bytes:
        """Read the time stamps in `data`; return it after the rest of the last read."""
        now, data = time.monotonic(), self._tail + data
        new, repeated, _ = data.partition(_REPEATED_TEXT)
        end = 0
        for match in STAMP.finditer(new) if not self._is_repeated else ():
            self.lags.append(now - int(match[1]) / 1e6)
            end = match.end()
        if self.lags and self.ttft is None:
            self.ttft = now - self.sent_at
        self.total = now - self.sent_at
        self._is_repeated = self._is_repeated or bool(repeated)
        self._tail = data[max(end, len(data) - _LONGEST_STAMP) :]
        return data


class Connection:
    """One keep-alive connection. Use it inside `async with`."""

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
            raise RequestFailed(head.partition(b"\r\n")[0].decode())
        return head.lower()


class Http(Connection):
    async def post(
        self, path: str, body: dict[str, object], *, status: bytes = b"200"
    ) -> Answer:
        """Send one request and read its response to the end, streamed or not."""
        answer, sent = Answer(), orjson.dumps(body)
        length = b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._send_head("POST", path, length % len(sent) + sent)
        head = await self._read_head(status)
        if b"transfer-encoding: chunked" in head:
            while not answer.record(await self._read()).endswith(b"0\r\n\r\n"):
                pass
        else:
            size = int(head.partition(b"content-length:")[2].split(b"\r")[0])
            answer.record(await self._reader.readexactly(size))
        return answer

    async def _read(self) -> bytes:
        if not (data := await self._reader.read(2**16)):
            raise RequestFailed("The server closed the connection.")
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
        return await self._read_turn(answer)

    async def subscribe(self) -> Answer:
        """Read the next turn that another client begins in the conversation."""
        answer, seen = Answer(), b""
        while not (queued := _QUEUED.search(seen)):
            seen += await self._read()
        self._send_text(
            orjson.dumps({"type": "turn.follow", "turn": queued[1].decode()})
        )
        return await self._read_turn(answer)

    async def _read_turn(self, answer: Answer) -> Answer:
        """Read to the frame that ends the turn, which is the last one."""
        seen, ended = b"", False
        while not (ended and seen.endswith(b'"}')):
            seen = answer.record(await self._read())
            ended = ended or b'"type":"response.completed"' in seen
        return answer

    def _send_text(self, data: bytes) -> None:
        assert len(data) < 2**16
        short = len(data) < 126
        length = (
            bytes([128 + len(data)]) if short else b"\xfe%c%c" % divmod(len(data), 256)
        )
        self._writer.write(b"\x81" + length + bytes(4) + data)  # masked with zeros
