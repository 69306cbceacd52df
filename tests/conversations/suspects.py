"""A turn whose tool ends the process each time, beside others that did nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from tests.serving import ServerProcess

from .clients import Program
from .crashes import LONG, NUMBERS

INNOCENT = 2
DEADLY = "Please use act_deadly."
DEADLY_LATER = "Please use act_deadly_later."
PATIENCE = 500  # seconds, of which a process takes some to start


@dataclass(frozen=True, slots=True)
class Case:
    culprit: str  # ids of turns
    innocent: Sequence[str]
    crashes: int


async def crashed_until_over(
    program: Program, fallible: Sequence[ServerProcess], question: str
) -> Case:
    """Asks all at once; starts whatever process the culprit has ended, until all turns
    are over."""
    conversations = [await program.conversation() for _ in range(INNOCENT + 1)]
    questions = [*[LONG] * INNOCENT, question]
    asking = zip(conversations, questions, strict=True)
    *innocent, culprit = [await program.ask(c, q, key=c) for c, q in asking]
    crashes = 0
    async with asyncio.timeout(PATIENCE):
        while not await _are_over(program, [*innocent, culprit]):
            for server in fallible:
                crashes += await _started_again(server)
            await asyncio.sleep(0.1)
    return Case(culprit, innocent, crashes)


async def _started_again(server: ServerProcess) -> int:
    """Starts it if it has ended. How often it has, as the turn may end it once more
    before it says that it runs."""
    ends = 0
    if server.process is not None:
        if server.process.poll() is None:
            return 0
        server.process.communicate()
        server.process = None
        ends += 1
    try:
        await asyncio.to_thread(server.start)
    except AssertionError:
        ends += 1
    return ends


async def _are_over(program: Program, turns: Sequence[str]) -> bool:
    with suppress(httpx.TransportError):
        found = [await program.turn(turn) for turn in turns]
        return all(turn["finished_at"] for turn in found)
    return False


async def assert_innocent(program: Program, case: Case) -> None:
    for turn in case.innocent:
        found = await program.turn(turn)
        assert (found["status"], _text(found)) == ("completed", NUMBERS)


def _text(turn: dict[str, Any]) -> str:
    said = [item for item in turn["items"] if item.get("role") == "assistant"]
    return "".join(part["text"] for item in said for part in item["content"])
