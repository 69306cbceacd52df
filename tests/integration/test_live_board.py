"""The live board under a provider that fails half of the time: what it says is true."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.clients import NO_TLS, Program, sign_in
from tests.integration.stopping import MODEL, teach
from tests.integration.upstream import ANSWER, HEAD, START, chunk
from tests.scaled import Cluster, migrated
from tests.serving import ServerProcess, free_port

PATIENCE = 120  # seconds; a lost process is called so after 20
FEW = 12  # turns
HELD = 4
BOARD = "/admin/conversations/turn/engine/"
Rows = list[list[str]]


class HalfFailing:
    """Each second request fails with 500. "hold" is answered in part and kept open,
    "rest" is answered with 429."""

    def __init__(self) -> None:
        self.requests = self.failures = 0
        self.open = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[HalfFailing]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        yield self
        server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._writers.add(writer)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = re.search(rb"content-length: (\d+)", head)
        assert size
        body = await reader.readexactly(int(size[1]))
        if b"hold" in body:
            self.open += 1
            writer.writelines([HEAD, START, chunk(content="Half a")])
            await reader.read()
            self.open -= 1
        else:
            writer.writelines(self._reply(body))
        writer.close()

    def _reply(self, body: bytes) -> Sequence[bytes]:
        self.requests += 1
        if b"rest" in body:
            self.failures += 1
            return [_refusal(b"429 Too Many Requests", b"Retry-After: 900\r\n")]
        if self.requests % 2:
            self.failures += 1
            return [_refusal(b"500 Internal Server Error", b"")]
        return ANSWER


def _refusal(status: bytes, headers: bytes) -> bytes:
    return b"HTTP/1.1 %s\r\n%sContent-Length: 2\r\n\r\n{}" % (status, headers)


class Board:
    """The page as staff have it, signed in."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.html = ""

    async def read(self) -> None:
        answer = await self._http.get(f"{BOARD}?fragment=1")
        assert answer.status_code == 200
        self.html = answer.text

    def table(self, caption: str) -> Rows:
        """Its rows; none if there is no such table."""
        found = re.search(f"<caption>{caption}</caption>(.*?)</table>", self.html, re.S)
        rows = re.findall(r"<tr>(.*?)</tr>", found[1] if found else "", re.S)
        cells = [re.findall(r"<t[hd]\b.*?>(.*?)</t[hd]>", row, re.S) for row in rows]
        plain = [[_plain(cell) for cell in row] for row in cells]
        return [row for row in plain[1:] if len(row) > 1]

    def tile(self, label: str) -> str:
        found = re.search(rf"<strong>([^<]*)</strong> {label}</li>", self.html)
        assert found, label
        return found[1]

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Reads the page until it says so."""
        async with asyncio.timeout(PATIENCE):
            while await self.read() or not is_so():
                await asyncio.sleep(0.2)

    async def post(self, page: str, **data: str) -> None:
        page_of_staff = await self._http.get(BOARD)
        token = re.search(r'csrfmiddlewaretoken" value="([^"]+)', page_of_staff.text)
        assert token
        data["csrfmiddlewaretoken"] = token[1]
        assert (await self._http.post(page, data=data)).status_code == 302

    def processes(self) -> Rows:
        """Those that run turns."""
        return [row for row in self.table("Processes") if "runs turns" in row[1]]

    def alive(self) -> Rows:
        return [row for row in self.processes() if "lost" not in row[1]]

    def sum(self, column: int) -> int:
        """Of a column such as "3 / 50" of the processes that are not lost."""
        return sum(int(row[column].split()[0]) for row in self.alive())


def _plain(cell: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", cell)).split())


@asynccontextmanager
async def board_at(server: ServerProcess) -> AsyncIterator[Board]:
    cookie = await sign_in(server, "admin")
    async with httpx.AsyncClient(
        base_url=server.url,
        cookies=dict([cookie.split("=", 1)]),
        timeout=PATIENCE,
        verify=NO_TLS,
    ) as http:
        yield Board(http)


async def ask(program: Program, text: str) -> str:
    return await program.create_turn(await program.conversation(), text, model=MODEL)


async def assert_true(
    program: Program,
    board: Board,
    host: HalfFailing,
    kill_one: Callable[[], Awaitable[Any]] | None,
) -> None:
    """From a provider's errors to the end of a maintenance."""
    for number in range(FEW):
        await ask(program, f"plain {number}")
    await board.until(lambda: board.tile("running") + board.tile("queued") == "00")
    [line] = board.table("Providers, last five minutes")
    name, calls, errors, last, p50, p95, first = line
    assert (name, int(calls)) == ("Upstream", host.requests)
    percent = round(100 * host.failures / host.requests)
    assert errors == f"{host.failures} ({percent} %)"
    assert last == "E_LLM_PROVIDER_DOWN"
    assert "–" not in (p50, p95, first)

    held = [await ask(program, "hold") for _ in range(HELD)]
    await board.until(lambda: (board.sum(4), board.sum(6)) == (HELD, HELD))
    assert board.tile("running") == str(HELD)
    turns = board.table("Turns")
    assert {row[0] for row in turns} == set(held)
    assert all(row[6] != "–" for row in turns)  # a lease

    if kill_one:
        await kill_one()
        await board.until(lambda: any("lost" in row[1] for row in board.processes()))
        assert len(board.alive()) == 1
        await board.until(lambda: (board.sum(4), board.sum(6)) == (HELD, HELD))
        assert {row[0] for row in board.table("Turns")} == set(held)

    await board.post(f"{BOARD}drain/", process="all", drains="yes", confirmed="yes")
    await board.until(lambda: all("draining" in row[1] for row in board.alive()))
    waiting = await ask(program, "hold")
    await board.until(lambda: board.tile("queued") == "1")
    for turn in held:
        await board.post(f"{BOARD}{turn}/", action="cancel", confirmed="yes")
    await board.until(lambda: board.tile("running") == "0")
    assert host.open == 0
    await board.until(lambda: all("drained" in row[1] for row in board.alive()))
    await board.post(f"{BOARD}drain/", process="all", drains="no")
    await board.until(lambda: (board.tile("queued"), board.sum(4)) == ("0", 1))
    await program.cancel(waiting)

    assert board.table("Keys not in use") == []
    await ask(program, "rest")
    await board.until(lambda: bool(board.table("Keys not in use")))
    [[key, provider, state, _, reason]] = board.table("Keys not in use")
    assert (key, provider, state) == ("spare", "Upstream", "resting")
    assert "429" in reason or "rate" in reason.lower()
    assert board.tile("keys not in use") == "1"


async def assert_maintenance(programs: Sequence[Program], board: Board) -> None:
    """At every process, and its end."""
    page = f"{BOARD}maintenance/"
    await board.post(page, banner="Back at noon", refuses_messages="on")
    await board.until(lambda: "Back at noon" in board.html)
    for status, end in ((503, True), (202, False)):
        for program in programs:
            conversation = await program.conversation()
            url = f"/api/conversations/{conversation}/turns/"
            async with program.http() as http, asyncio.timeout(PATIENCE):
                while (
                    await http.post(url, json={"input": "Hi"})
                ).status_code != status:
                    await asyncio.sleep(0.2)
        if end:
            shown = {"initial-banner": "Back at noon"}
            shown["initial-refuses_messages"] = "True"
            await board.post(page, banner="", **shown)
    await board.until(lambda: "Back at noon" not in board.html)


def learn(server: ServerProcess, port: int) -> None:
    teach(server, port)
    add = "from llm.models import Provider; Provider.objects.get(name='Upstream')"
    add += ".keys.create(label='spare', secret='sk-of-these-tests')"
    server.manage("shell", "-v0", "-c", add)


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_the_board_of_one_process_is_true(tmp_path: Path, migrated_data: Path):
    data, port = tmp_path / "data", free_port()
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data).start()
    try:
        await asyncio.to_thread(learn, server, port)
        program = await asyncio.to_thread(Program, server)
        async with HalfFailing().listening(port) as host, board_at(server) as board:
            await assert_true(program, board, host, None)
            await assert_maintenance([program], board)
    finally:
        server.kill()


@pytest.mark.scaled
@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_the_board_of_a_cluster_is_true_also_after_a_worker_was_killed(
    tmp_path: Path,
):
    port = free_port()
    with migrated(tmp_path / "template") as template:
        cluster = Cluster(tmp_path, template, webs=2, workers=2)
        try:
            await asyncio.to_thread(cluster.start)
            await asyncio.to_thread(learn, cluster.webs[0], port)
            programs = [
                await asyncio.to_thread(Program, server) for server in cluster.webs
            ]
            kill = cluster.workers[0].kill
            async with (
                HalfFailing().listening(port) as host,
                board_at(cluster.webs[1]) as board,
            ):
                await assert_true(
                    programs[0], board, host, lambda: asyncio.to_thread(kill)
                )
                await assert_maintenance(programs, board)
        finally:
            await asyncio.to_thread(cluster.end)
