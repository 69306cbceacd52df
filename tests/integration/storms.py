"""Turns that run while something breaks: nothing is lost, and all are final."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import httpx

from tests.integration.clients import Program, Screen
from tests.integration.following import BROKEN, assert_nothing_twice, whole
from tests.integration.stopping import until

TURNS = 8  # that run when it breaks
PACE = 0.3  # seconds between two messages, while nothing is over
WORDS = 150  # at the demo's pace five seconds
NUMBERS = " ".join(str(number) for number in range(1, WORDS + 1))
ACT = "Please use act_once, act_same and act_later."

Grows = Callable[[], Awaitable[None]]  # waits until each answer has grown
Disturb = Callable[[Grows], Awaitable[None]]


async def weather(programs: Sequence[Program], disturb: Disturb) -> None:
    """Answers that are being streamed, one whose tools act, and messages that arrive
    while `disturb` runs; each is sent to one process and followed at another."""

    def two(number: int) -> tuple[Program, Program]:
        count = len(programs)
        return programs[number % count], programs[(number + 1) % count]

    screens = [Screen() for _ in range(TURNS)]

    async def grow() -> None:
        lengths = [len(screen.text) for screen in screens]

        async def have_grown() -> bool:
            return all(
                screen.over or len(screen.text) > length
                for screen, length in zip(screens, lengths, strict=True)
            )

        await until(have_grown)

    async with asyncio.TaskGroup() as group:
        for number, screen in enumerate(screens):
            group.create_task(_long_and_short(*two(number), screen))
        await until(lambda: _all_begun(screens))
        acting = group.create_task(_acting(*two(TURNS)))
        over = asyncio.Event()
        posting = group.create_task(_posting(programs, over))
        await disturb(grow)
        over.set()
    assert acting.done()
    assert posting.result() > 0


async def _all_begun(screens: Sequence[Screen]) -> bool:
    return all(screen.text for screen in screens)


async def _long_and_short(program: Program, other: Program, screen: Screen) -> None:
    """The second message waits for the end of the first."""
    conversation = await program.conversation()
    first = await program.create_turn(conversation, f"/long {WORDS}")
    second = await program.create_turn(conversation, "/echo And here")
    await whole(other, first, screen)
    assert screen.text == NUMBERS
    assert_nothing_twice(screen)
    assert (await whole(other, second)).text == "And here"
    for turn in (first, second):
        assert (await other.turn(turn))["status"] == "completed"


async def _acting(program: Program, other: Program) -> None:
    """Each tool has acted once, and the background result is delivered."""
    conversation, key = await _conversation(program), uuid.uuid4().hex
    turn = await _create_turn_with_retries(program, conversation, ACT, key)
    await whole(other, turn)

    async def is_settled() -> bool:
        try:
            async with other.http() as http:
                base = f"/api/conversations/{conversation}"
                calls = (await http.get(f"{base}/tool-calls/")).json()["results"]
                turns = (await http.get(f"{base}/turns/")).json()["results"]
        except (httpx.TransportError, KeyError, ValueError):
            return False
        return all(turn["status"] == "completed" for turn in turns) and all(
            call["delivered_in"] or call["blocking"] for call in calls
        )

    await until(is_settled)


async def _posting(programs: Sequence[Program], over: asyncio.Event) -> int:
    """Messages are taken in or refused; those taken in are answered. Their number."""
    conversation, taken, number = await _conversation(programs[0]), [], 0
    while not (taken and over.is_set()):
        number += 1
        text, key = f"/echo {number}", uuid.uuid4().hex
        turn = await _create_turn_with_retries(
            programs[number % len(programs)], conversation, text, key
        )
        taken.append((turn, str(number)))
        with suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), PACE)
    for turn, text in taken:
        assert (await whole(programs[0], turn)).text == text
    return len(taken)


async def _create_turn_with_retries(
    program: Program, conversation: str, text: str, key: str
) -> str:
    """Repeated with the same key, until it is accepted."""
    while True:
        try:
            return await program.create_turn(conversation, text, key=key)
        except BROKEN:
            await asyncio.sleep(0.1)


async def _conversation(program: Program) -> str:
    while True:
        try:
            return await program.conversation()
        except (*BROKEN, KeyError, ValueError):
            await asyncio.sleep(0.1)
