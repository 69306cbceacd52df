"""Resident memory of one embedded server during large answers.

Twenty conversations receive answers of 20 MB each while their clients, over SSE or
WebSocket, read nothing; once with the default `MAX_ANSWER_SIZE` and once with a higher
one. Then single answers of 100 MB: stored, and unstored through the gateway to a client
that does not read and to one that does. The benchmark reads the turns' progress from
the database, because an API response would hold the text itself.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from websockets.asyncio.client import connect

from benchmarks.processes import memory
from benchmarks.table import show
from tests.integration.clients import Program, sign_in
from tests.integration.stopping import MODEL, teach
from tests.serving import ServerProcess, free_port

TURNS, SIZE, LARGE = 20, 20, 100  # MB of an answer
RAISED = "30000000"  # a MAX_ANSWER_SIZE above all of the twenty answers
AFTER = 60  # seconds after the last turn's end
LONGEST = 300  # seconds that a measurement may take before it is given up
BOUND = 600  # MB, of twenty answers that nobody reads
MB = 1_000_000
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
_HEAD += b"Connection: close\r\n\r\n"


class LargeHost:
    """A Chat Completions host that writes `size` MB of random words at full speed."""

    def __init__(self, port: int, size: int) -> None:
        self.port = port
        self.sent = 0  # bytes of the answers' text
        self._size = size * MB
        dice = random.Random(7)
        letters = "abcdefghijklmnopqrstuvwxyz"
        words = [
            "".join(dice.choices(letters, k=dice.randint(2, 9))) for _ in range(5000)
        ]
        texts = [" ".join(dice.choices(words, k=160)) + " " for _ in range(500)]
        self._frames = [(len(text), _frame({"content": text})) for text in texts]
        self._dice = dice
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._sent_at = math.inf  # nothing yet

    def has_paused(self) -> bool:
        """Whether the server has read nothing for three seconds."""
        return time.monotonic() - self._sent_at > 3.0

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[LargeHost]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        try:
            yield self
        finally:
            server.close()
            serving = dict(self._serving)
            for writer in serving:
                writer.transport.abort()
            await asyncio.gather(*serving.values())

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        serving = asyncio.current_task()
        assert serving is not None
        self._serving[writer] = serving
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(_HEAD)
            left = self._size
            while left > 0:
                size, frame = self._dice.choice(self._frames)
                writer.write(frame)
                await writer.drain()
                left -= size
                self.sent += size
                self._sent_at = time.monotonic()
            writer.write(_frame({}, "stop") + b"data: [DONE]\n\n")
            await writer.drain()
        except ConnectionError:
            pass  # the answer was cut at its limit
        finally:
            writer.close()
            del self._serving[writer]


def _frame(delta: Mapping[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %b\n\n" % json.dumps({"id": "c", "choices": [choice]}).encode()


@dataclass(slots=True)
class Figures:
    """MB of a server's resident memory."""

    server: ServerProcess
    base: float = 0.0
    peak: float = 0.0

    def look(self) -> float:
        assert self.server.process
        now = memory(self.server.process.pid) / MB
        self.peak = max(self.peak, now)
        return now

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0.1)


Begin = Callable[[ServerProcess, Program, AsyncExitStack], Awaitable[None]]


async def unread_sse(
    server: ServerProcess, program: Program, opened: AsyncExitStack
) -> None:
    turn = await program.create_turn(await program.conversation(), "Go on", model=MODEL)
    await _unread(server, program, opened, f"GET /api/turns/{turn}/events/ HTTP/1.1")


async def unread_websocket(
    cookie: str, server: ServerProcess, program: Program, opened: AsyncExitStack
) -> None:
    conversation = await program.conversation()
    turn = await program.create_turn(conversation, "Go on", model=MODEL)
    page = await opened.enter_async_context(
        connect(
            f"{server.ws_url}/ws/conversations/{conversation}/",
            additional_headers={"Cookie": cookie, "Origin": server.url},
            max_queue=1,
            close_timeout=0,
        )
    )
    await page.send(json.dumps({"type": "turn.follow", "turn": turn}))


async def unread_gateway(
    server: ServerProcess, program: Program, opened: AsyncExitStack
) -> None:
    body = json.dumps(_unstored())
    head = "POST /v1/responses HTTP/1.1\r\nContent-Type: application/json"
    head += f"\r\nContent-Length: {len(body)}"
    await _unread(server, program, opened, head, body)


async def read_gateway(
    server: ServerProcess, program: Program, opened: AsyncExitStack
) -> None:
    async with (
        program.http() as http,
        http.stream("POST", "/v1/responses", json=_unstored()) as answer,
    ):
        async for _ in answer.aiter_raw():
            pass


def _unstored() -> dict[str, object]:
    return {"model": MODEL, "input": "Go on", "stream": True, "store": False}


async def _unread(
    server: ServerProcess,
    program: Program,
    opened: AsyncExitStack,
    head: str,
    body: str = "",
) -> None:
    """Send a request and read nothing from its connection."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    # Holds the writer: asyncio closes a connection whose streams are collected.
    opened.callback(lambda: writer.transport.abort())
    token = program.http().headers["Authorization"]
    fields = f"Host: 127.0.0.1:{server.port}\r\nAuthorization: {token}"
    writer.write(f"{head}\r\n{fields}\r\n\r\n{body}".encode())
    await writer.drain()


@contextmanager
def _serving(**environment: str) -> Iterator[tuple[ServerProcess, int]]:
    with tempfile.TemporaryDirectory(prefix="parley-bench-") as folder:
        server, port = ServerProcess(Path(folder) / "data", environment), free_port()
        server.manage("migrate", "--skip-checks", "--verbosity=0")
        server.start()
        try:
            teach(server, port)
            yield server, port
        finally:
            server.kill()


async def _measure(
    server: ServerProcess, host: LargeHost, begin: Begin, number: int
) -> tuple[float, float, float, float, float]:
    """MB at the start, at the peak, at the turns' end and a minute later; seconds."""
    program, figures = Program(server), Figures(server)
    async with host.listening(), AsyncExitStack() as opened:
        figures.base = figures.look()
        watching = asyncio.ensure_future(figures.watch())
        begun = time.monotonic()
        await asyncio.gather(*(begin(server, program, opened) for _ in range(number)))
        await _over(server, host)
        at_end, seconds = figures.look(), time.monotonic() - begun
        await asyncio.sleep(AFTER)
        watching.cancel()
        return figures.base, figures.peak, at_end, figures.look(), seconds


async def _over(server: ServerProcess, host: LargeHost) -> None:
    until = time.monotonic() + LONGEST
    while not _is_over(server, host):
        if time.monotonic() > until:
            raise TimeoutError(f"the turns did not end within {LONGEST} s")
        await asyncio.sleep(1)


def _is_over(server: ServerProcess, host: LargeHost) -> bool:
    path = f"file:{server.data / 'parley.sqlite3'}?mode=ro"
    with closing(sqlite3.connect(path, uri=True)) as rows:
        query = "SELECT count(*) FROM conversations_turn WHERE finished_at IS NULL"
        ((unfinished,),) = rows.execute(query).fetchall()
    return not unfinished and host.has_paused()


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    begin: Begin | None  # None: over WebSocket, which takes a signed-in page
    number: int = TURNS
    size: int = SIZE  # MB
    limit: str = ""  # MAX_ANSWER_SIZE; the default where empty
    bound: int | None = BOUND  # MB


CASES = {
    "sse": Case("20 x 20 MB, SSE", unread_sse),
    "websocket": Case("20 x 20 MB, WebSocket", None),
    "sse-raised": Case("20 x 20 MB, SSE, limit 30 MB", unread_sse, limit=RAISED),
    "websocket-raised": Case("20 x 20 MB, WebSocket, limit 30 MB", None, limit=RAISED),
    "stored": Case("100 MB, SSE", unread_sse, 1, LARGE),
    "gateway": Case("20 x 20 MB, gateway, unread", unread_gateway),
    "gateway-large": Case("100 MB, gateway, unread", unread_gateway, 1, LARGE),
    "gateway-read": Case("100 MB, gateway, read", read_gateway, 1, LARGE, bound=None),
}


async def measure(case: Case) -> list[object]:
    environment = {"MAX_ANSWER_SIZE": case.limit} if case.limit else {}
    with _serving(**environment) as (server, port):
        begin = case.begin
        if begin is None:
            begin = partial(unread_websocket, await sign_in(server, "admin"))
        host = LargeHost(port, case.size)
        *figures, seconds = await _measure(server, host, begin, case.number)
    row = [case.name, *(round(figure) for figure in figures)]
    return [*row, case.bound, round(host.sent / MB), f"{seconds:.0f} s"]


def main(names: Sequence[str] = ()) -> None:
    head = ["MB", "base", "peak", "at the end", "60 s later", "bound", "sent", "took"]
    rows = [asyncio.run(measure(CASES[name])) for name in names or CASES]
    show("Memory of one embedded server, answers that are not read", head, rows)


if __name__ == "__main__":
    main(sys.argv[1:])
