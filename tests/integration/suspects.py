"""A turn whose tool ends the process each time, beside others that did nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from tests.integration.clients import Program
from tests.integration.crashes import LONG, NUMBERS
from tests.serving import ServerProcess

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
    """Create all turns at once; restart every process that the culprit has ended, until
    all turns are over."""
    conversations = [await program.conversation() for _ in range(INNOCENT + 1)]
    questions = [*[LONG] * INNOCENT, question]
    asking = dict(zip(conversations, questions, strict=True))
    turns: dict[str, str] = {}  # by conversation
    crashes = 0
    async with asyncio.timeout(PATIENCE):
        while not await _are_over(program, asking, turns):
            for server in fallible:
                crashes += await _started_again(server)
            await asyncio.sleep(0.1)  # other processes: no event to wait for
    *innocent, culprit = turns.values()
    return Case(culprit, innocent, crashes)


async def _started_again(server: ServerProcess) -> int:
    """Start it if it has ended. Returns how often it has: the turn may end it once more
    before it reports that it runs."""
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


async def _are_over(
    program: Program, asking: Mapping[str, str], turns: dict[str, str]
) -> bool:
    """Create the turns that are not known yet: the process may end before it answers,
    so a question is sent again with its key."""
    with suppress(httpx.TransportError):
        for conversation, question in asking.items():
            if conversation not in turns:
                turns[conversation] = await program.create_turn(
                    conversation, question, key=conversation
                )
        found = [await program.turn(turn) for turn in turns.values()]
        return all(turn["finished_at"] for turn in found)
    return False


async def assert_innocent(program: Program, case: Case) -> None:
    for turn in case.innocent:
        found = await program.turn(turn)
        assert (found["status"], _text(found)) == ("completed", NUMBERS)


def _text(turn: dict[str, Any]) -> str:
    answers = [item for item in turn["items"] if item.get("role") == "assistant"]
    return "".join(part["text"] for item in answers for part in item["content"])
