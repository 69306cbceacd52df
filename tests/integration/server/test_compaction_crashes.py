"""`kill -9` around the write of a summary: there is one, and the turn is answered."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.integration.clients import Program
from tests.integration.crashes import FINAL, SETTINGS
from tests.integration.following import whole
from tests.serving import Deadline, ServerProcess

pytestmark = [pytest.mark.server, pytest.mark.slow]

WINDOW = 4000  # tokens
SMALL_WINDOW = f"""
from llm.models import LanguageModel
LanguageModel.objects.filter(is_default=True).update(context_window={WINDOW})
"""
LONG = "Tea is a drink. " * 190  # about 760 tokens


async def context_of(program: Program, conversation: str) -> dict:
    async with program.http() as http:
        path = f"/api/conversations/{conversation}/context/"
        return (await http.get(path)).json()


async def ended(program: Program, turn: str) -> dict:
    await whole(program, turn)
    return await program.turn(turn)


@pytest.mark.parametrize("side", ["before", "after"])
async def test_a_crash_around_a_summary_loses_and_doubles_nothing(
    migrated_data: Path, tmp_path: Path, side: str
):
    shutil.copytree(migrated_data, tmp_path / "data")
    server = ServerProcess(tmp_path / "data", SETTINGS)
    try:
        await _crash_around_a_summary(server, side)
    finally:
        if server.process:
            server.kill()


async def _crash_around_a_summary(server: ServerProcess, side: str) -> None:
    await asyncio.to_thread(server.start)
    server.manage("shell", "-c", SMALL_WINDOW)
    program = Program(server)
    conversation = await program.conversation()
    while (await context_of(program, conversation))["tokens"] < WINDOW * 0.75 - 700:
        await ended(program, await program.create_turn(conversation, LONG))
    await asyncio.to_thread(server.stop)
    # A turn without tools writes nothing on its way but a summary.
    server.environment["CRASH_AT"] = f"turn_store.advance:{side}"
    await asyncio.to_thread(server.start)
    turn = await program.create_turn(conversation, LONG)
    await asyncio.to_thread(_wait_for_crash, server)
    del server.environment["CRASH_AT"]
    await asyncio.to_thread(server.start)
    async with asyncio.timeout(FINAL):
        found = await ended(program, turn)
    assert found["status"] == "completed"
    kinds = [item["type"] for item in found["items"]]
    assert kinds == ["message", "compaction", "message"]
    calls = [call["purpose"] for call in found["model_calls"]]
    # The call before the crash was not yet on record.
    assert calls == ["summary", "answer"]
    context = await context_of(program, conversation)
    assert context["compaction"]["id"] == found["items"][1]["id"]


def _wait_for_crash(server: ServerProcess) -> None:
    process, server.process = server.process, None
    assert process
    with process, Deadline(process):
        assert process.wait() == -9
