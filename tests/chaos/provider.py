"""The chaos provider: an HTTP/1.1 server with its hands on the connection.

It is no ASGI application, since half of a provider's faults (a connection that
is cut before the first byte, in the middle of a chunk, or when it is used again) is
below what ASGI can say.

    python -m tests.chaos.provider PORT     # GET /ledger lists its requests
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from . import faults
from .answers import Answer, Say
from .ledger import Ledger, RecordedRequest
from .prompt import Prompt
from .scenarios import answer_to, step_due
from .wires import Frame, Wire, wire_at
from .wires.gemini import GeminiWire

SILENCE = 2.0  # seconds
STREAM = b"text/event-stream"
JSON = b"application/json"
_BROKEN = (ConnectionError, asyncio.IncompleteReadError)


class Cut(Exception):
    """The connection is to be cut here."""


class ChaosProvider:
    """Listens on `port` while it is entered."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.ledger = Ledger()
        self._portions: dict[
            str, tuple[RecordedRequest, Sequence[Frame]]
        ] = {}  # by token
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ChaosProvider:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, backlog=500, limit=2**22
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        connection = _Connection(self, reader, writer)
        try:
            while await connection.answer():
                pass
        except Cut:
            writer.transport.abort()
        except (*_BROKEN, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            with suppress(*_BROKEN):
                writer.close()

    def record_request(self, wire: Wire, prompt: Prompt) -> RecordedRequest:
        wish = prompt.wish
        number = len(self.ledger.of(wish)) + 1
        answer = self._prefilled(prompt)
        if answer is None:
            answer = answer_to(wish, step_due(wish.scenario, prompt.entries), number)
        fault = wish.fault
        if wish.fault_requests and number > wish.fault_requests:
            fault = ""
        recorded = RecordedRequest(
            wish, wire.name, number, prompt.entries, answer, fault
        )
        self.ledger.add(recorded)
        return recorded

    def _prefilled(self, prompt: Prompt) -> Answer | None:
        """The rest of an answer whose beginning is the last message of the prompt."""
        begun = prompt.prefilled
        for recorded in self.ledger.of(prompt.wish) if begun else ():
            for part in recorded.answer.parts:
                if isinstance(part, Say) and part.text.startswith(begun) != (
                    part.text == begun
                ):
                    rest = (Say(part.text[len(begun) :]),)
                    known = recorded.answer
                    return Answer(known.source, known.step, rest, known.end)
        return None

    def keep_portion(self, recorded: RecordedRequest, rest: Sequence[Frame]) -> str:
        token = f"portion_{recorded.wish.id}_{recorded.number}"
        self._portions[token] = recorded, rest
        return token

    def take_portion(self, token: str) -> tuple[RecordedRequest, Sequence[Frame]]:
        return self._portions.pop(token)


class _Connection:
    """One client's connection; an answer after another."""

    def __init__(
        self,
        provider: ChaosProvider,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._provider = provider
        self._ledger = provider.ledger
        self._reader, self._writer = reader, writer
        self._closes_when_used = False

    async def answer(self) -> bool:
        """False where the connection is over."""
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            return False
        if self._closes_when_used:
            raise Cut
        first, *lines = head.split("\r\n")
        path = first.split(" ")[1]
        fields = {n.lower(): v for n, _, v in (line.partition(": ") for line in lines)}
        body = await self._reader.readexactly(int(fields.get("content-length") or 0))
        if path == "/ledger":
            await self._send(
                200, JSON, json.dumps(_ledger_summary(self._ledger)).encode()
            )
            return True
        self._ledger.requests += 1
        wire = wire_at(path)
        prompt = wire.read(path, json.loads(body)) if wire and body else None
        if wire is None or prompt is None:
            await self._send(404, JSON, b'{"error": {"message": "No wish."}}')
            return True
        await self._answer(wire, prompt)
        await self._ledger.note()
        return True

    async def _answer(self, wire: Wire, prompt: Prompt) -> None:
        if prompt.continues:
            recorded, frames = self._provider.take_portion(prompt.continues)
            await self._stream(wire, recorded, frames)
            return
        recorded = self._provider.record_request(wire, prompt)
        await self._ledger.note()
        try:
            await self._answer_request(wire, recorded)
        finally:
            recorded.closed_at = time.time()
            await self._ledger.note()

    async def _answer_request(self, wire: Wire, recorded: RecordedRequest) -> None:
        if recorded.fault == "idle close":
            self._closes_when_used = True
        elif recorded.fault in faults.BEFORE:
            await self._refuse(wire, recorded)
            return
        frames = list(
            wire.frames(recorded.answer, f"c_{recorded.wish.id}_{recorded.number}")
        )
        if recorded.wish.scenario == "continuation" and isinstance(wire, GeminiWire):
            half = len(frames) // 2
            token = self._provider.keep_portion(recorded, frames[half:])
            pause = wire.continuation(f"c_{recorded.wish.id}_{recorded.number}", token)
            frames = [*frames[:half], pause]
        await self._stream(wire, recorded, frames)

    async def _refuse(self, wire: Wire, recorded: RecordedRequest) -> None:
        match recorded.fault:
            case "cut before the first byte":
                raise Cut
            case "html page":
                await self._send(200, b"text/html", faults.HTML)
            case "html error":
                await self._send(502, b"text/html", faults.HTML)
            case status:
                number = faults.STATUSES[status]
                body = json.dumps(wire.error(number)).encode()
                await self._send(number, JSON, body)

    async def _stream(
        self, wire: Wire, recorded: RecordedRequest, frames: Sequence[Frame]
    ) -> None:
        content = sum(not frame.ends for frame in frames)
        harm = faults.harm(recorded.fault, len(frames), content)
        self._head(200, STREAM, b"Transfer-Encoding: chunked\r\n")
        held_from = recorded.wish.hold.get(str(recorded.number), 1000) * content // 100
        for number, frame in enumerate(frames[: harm.stops_after]):
            if recorded.frames == held_from:
                await self._hold(recorded)
            if harm.silent and number == content // 2:
                await asyncio.sleep(SILENCE)
            await self._write(recorded, frame)
            if frame.is_content and recorded.wish.pace:
                await asyncio.sleep(recorded.wish.pace)
        if harm.cuts:
            await self._writer.drain()
            raise Cut
        await self._finish(wire, recorded, frames)
        recorded.ended = harm.ends and any(frame.ends for frame in frames)
        if recorded.fault == "no finish reason":
            recorded.ended = bool(wire.unfinished())
        self._chunk(b"")
        await self._writer.drain()

    async def _finish(
        self, wire: Wire, recorded: RecordedRequest, frames: Sequence[Frame]
    ) -> None:
        """What a fault puts behind the frames."""
        match recorded.fault:
            case "error event":
                for frame in wire.error_frames():
                    self._chunk(frame.data)
            case "truncated json":
                data = frames[len(frames) // 2].data
                self._chunk(data[: len(data) // 2].rstrip() + b"\n\n")
            case "no finish reason" if wire.unfinished():
                self._chunk(wire.unfinished())
            case "doubled end":
                for frame in frames:
                    if frame.ends:
                        self._chunk(frame.data)
        await self._writer.drain()

    async def _write(self, recorded: RecordedRequest, frame: Frame) -> None:
        self._chunk(frame.data)
        if (
            recorded.fault == "doubled end"
            and b"event: response.output_item.done" in frame.data
        ):
            self._chunk(frame.data)
        await self._writer.drain()
        if self._reader.at_eof():
            raise ConnectionResetError
        recorded.frames += 1

    async def _hold(self, recorded: RecordedRequest) -> None:
        """Until the client disconnects."""
        recorded.is_held = True
        await self._ledger.note()
        while await self._reader.read(1000):
            pass
        raise ConnectionResetError

    async def _send(self, status: int, kind: bytes, body: bytes) -> None:
        more = b"Content-Length: %d\r\n" % len(body)
        if status == 429:
            more += b"Retry-After: %d\r\n" % faults.RETRY_AFTER
        self._head(status, kind, more)
        self._writer.write(body)
        await self._writer.drain()

    def _head(self, status: int, kind: bytes, more: bytes) -> None:
        line = b"HTTP/1.1 %d Chaos\r\nContent-Type: %s\r\n" % (status, kind)
        self._writer.write(line + more + b"\r\n")

    def _chunk(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _ledger_summary(ledger: Ledger) -> dict[str, Any]:
    requests = [
        {
            "wish": recorded.wish.id,
            "wire": recorded.wire,
            "number": recorded.number,
            "step": recorded.answer.step,
            "ended": recorded.ended,
        }
        for recorded in ledger.recorded
    ]
    return {"requests": ledger.requests, "problems": ledger.problems, "asks": requests}


async def main(port: int) -> None:
    async with ChaosProvider(port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
