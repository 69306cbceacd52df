"""A web process is suspended during an answer, as by SIGSTOP or swapping, and
continues: its subscribers, those that left it and the requests sent to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.integration.clients import Program, Screen
from tests.integration.following import BROKEN, LONG, EntryPoint, assert_no_gap, whole
from tests.integration.stopping import MODEL, until
from tests.integration.upstream import counted
from tests.serving import ServerProcess

NUMBER = 300
WISH = f"count to {NUMBER} in 9 s"
TEXT = counted(NUMBER)

Enough = Callable[[Screen], Awaitable[bool]]


async def stand_still(
    server: ServerProcess,
    doors: Sequence[EntryPoint],
    elsewhere: Program,
    enough: Enough,
) -> None:
    """`entries` lead to the server; it continues when it is `enough` for subscribers
    that reconnected `elsewhere` meanwhile."""
    program = doors[0].program
    conversation = await program.conversation()
    turn = await program.create_turn(conversation, WISH, model=MODEL)
    stayed, left = [Screen() for _ in doors], Screen()
    async with asyncio.TaskGroup() as group:
        for entry, screen in zip(doors, stayed, strict=True):
            group.create_task(_stay(entry, conversation, turn, screen))
        await doors[-1].follow(conversation, turn, left, length=len(TEXT) // 9)
        await until(lambda: _all_have_text(stayed))
        server.pause()
        await until(lambda: _stands_still(server))
        group.create_task(whole(elsewhere, turn, left))
        later = group.create_task(
            program.create_turn(conversation, "And now?", model=MODEL)
        )
        await until(lambda: enough(left))
        assert not later.done()
        server.go_on()
    for screen in (*stayed, left):
        assert screen.text == TEXT
        assert_no_gap(screen)
        assert screen.positions[0] == "1-0"
    assert (await whole(program, later.result())).text == "Done."
    assert (await program.turn(turn))["status"] == "completed"


async def _stay(
    entry: EntryPoint, conversation: str, turn: str, screen: Screen
) -> None:
    """Hang up for nothing but a connection that breaks."""
    async with asyncio.timeout(LONG):
        while not screen.over:
            with suppress(*BROKEN):
                await entry.follow(conversation, turn, screen, length=len(TEXT) + 1)


async def _all_have_text(screens: Sequence[Screen]) -> bool:
    return all(screen.text for screen in screens)


async def _stands_still(server: ServerProcess) -> bool:
    assert server.process
    return _state(server.process.pid) == "T"


def _state(pid: int) -> str:
    """As Linux names it; T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
