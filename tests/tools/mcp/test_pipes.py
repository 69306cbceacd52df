"""Sessions with programs that write too much, or invalid messages."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tools.errors import AnswerTooLarge
from tools.mcp import stdio_transport
from tools.mcp.client import temporary_session
from tools.mcp.server_spec import Program, ServerSpec
from tools.mcp.session import Session
from tools.registry import Context

#: Answers the requests of a session; calls with `answer`, which gets the id.
SERVER = """
import json, os, sys
out = sys.stdout.buffer
{answer}
for line in sys.stdin.buffer:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "tools/call":
        answer(number)
        out.flush()
        continue
    if method == "initialize":
        result = {{"protocolVersion": "2025-06-18", "capabilities": {{"tools": {{}}}},
                  "serverInfo": {{"name": "s", "version": str(os.getpid())}}}}
        reply = {{"jsonrpc": "2.0", "id": number, "result": result}}
    elif method == "tools/list":
        result = {{"tools": [{{"name": "t", "inputSchema": {{"type": "object"}}}}]}}
        reply = {{"jsonrpc": "2.0", "id": number, "result": result}}
    elif number is not None:
        error = {{"code": -32601, "message": "unknown"}}
        reply = {{"jsonrpc": "2.0", "id": number, "error": error}}
    else:
        continue
    out.write(json.dumps(reply).encode() + b"\\n")
    out.flush()
"""
SAY = """
def say(number, text):
    result = {"content": [{"type": "text", "text": text}]}
    out.write(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode())
    out.write(b"\\n")
"""


@asynccontextmanager
async def talking(folder: Path, answer: str) -> AsyncGenerator[Session, None]:
    path = folder / "server.py"
    path.write_text(SERVER.format(answer=SAY + answer))
    program = Program(command=sys.executable, arguments=(str(path),))
    async with temporary_session(ServerSpec(name="local", program=program)) as session:
        yield session


async def process_of(session: Session) -> int:
    return int((await session.about())["version"])


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_line_may_come_in_pieces_and_lines_together(tmp_path: Path):
    answer = """
def answer(number):
    out.write(b"\\n \\n" * 50_000 + b'{"jsonrpc":"2.0","method":"notifications/x"}\\n')
    say(number, "é" * 300_000)
"""
    async with talking(tmp_path, answer) as session:
        assert await session.call("t", {}, Context()) == "é" * 300_000
        assert await session.call("t", {}, Context()) == "é" * 300_000


async def test_a_line_without_end_is_cut_off_and_its_program_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stdio_transport, "MAX_MESSAGE", 1_000_000)
    answer = """
def answer(number):
    while True:
        out.write(b"x" * 65_536)
"""
    async with talking(tmp_path, answer) as session:
        process = await process_of(session)
        with pytest.raises(AnswerTooLarge, match="larger than"):
            await session.call("t", {}, Context())
        assert not is_there(process)


async def test_a_whole_line_that_is_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stdio_transport, "MAX_MESSAGE", 1_000)
    answer = 'def answer(number):\n    say(number, "x" * 1_000)\n'
    async with talking(tmp_path, answer) as session:
        with pytest.raises(AnswerTooLarge, match="larger than"):
            await session.call("t", {}, Context())


async def test_a_line_of_too_many_values_is_refused(tmp_path: Path):
    answer = """
def answer(number):
    out.write(b"[" + b"[]," * 200_000 + b"0]\\n")
"""
    async with talking(tmp_path, answer) as session:
        with pytest.raises(AnswerTooLarge, match="250,000 values"):
            await session.call("t", {}, Context())


async def test_a_line_that_is_no_message_is_passed_over(tmp_path: Path):
    answer = """
def answer(number):
    out.write(b"Listening on stdout!\\n\\xff\\n[1]\\n")
    say(number, "there")
"""
    async with talking(tmp_path, answer) as session:
        assert await session.call("t", {}, Context()) == "there"


async def test_a_program_that_does_not_heed_its_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(stdio_transport, "END_GRACE", 0.05)
    answer = """
import atexit, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
atexit.register(time.sleep, 1_000)
def answer(number):
    say(number, "there")
"""
    async with talking(tmp_path, answer) as session:
        process = await process_of(session)
        assert await session.call("t", {}, Context()) == "there"
    async with asyncio.timeout(30):
        while is_there(process):  # until the killed program's parent has waited for it
            await asyncio.sleep(0)


async def test_what_a_program_leaves_behind_is_ended_too(tmp_path: Path):
    """As launchers do, which end with their input."""
    lock = tmp_path / "lock"
    answer = f"""
import fcntl, subprocess
lock = open({str(lock)!r}, "w")
fcntl.flock(lock, fcntl.LOCK_EX)
child = subprocess.Popen(["sleep", "1000"], pass_fds=[lock.fileno()])
def answer(number):
    say(number, "there")
"""
    async with talking(tmp_path, answer) as session:
        assert await session.call("t", {}, Context()) == "there"
        assert not is_free(lock)
    async with asyncio.timeout(30):
        while not is_free(lock):
            await asyncio.sleep(0)


def is_free(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
