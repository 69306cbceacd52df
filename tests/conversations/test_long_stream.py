from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable

import pytest

from tests.serving import ServerProcess, free_port

from .clients import Screen, sign_in
from .following import Door, assert_nothing_twice, read, wander, whole
from .long_stream import (
    TEXT,
    TIMES,
    WISH,
    Onlooker,
    Report,
    after,
    assert_little_was_told_again,
    assert_told_from_rows,
    kept_text,
)
from .stopping import MODEL, SETTINGS, teach
from .upstream import Upstream

pytestmark = [pytest.mark.server, pytest.mark.browser, pytest.mark.timeout(900)]


async def test_two_thousand_numbers_are_read_by_all_through_a_crash(
    start_server: Callable[..., ServerProcess],
    chromium: str,
    record_property: Report,
):
    port = free_port()
    server = start_server(**SETTINGS)
    teach(server, port)
    token, cookie = server.create_token(), await sign_in(server, "admin")
    doors = [Door(server, token), Door(server, token, cookie)]
    program, screen = doors[0].program, Screen()

    def report(name: str, value: object) -> None:
        print(f"{name}: {value}")
        record_property(name, value)

    async with Upstream(port), asyncio.TaskGroup() as group:
        conversation = await program.conversation()
        turn = await program.ask(conversation, WISH, model=MODEL)
        onlooker = Onlooker(server, conversation, reload_at=0.2)
        group.create_task(onlooker.look_on(chromium, report))
        wanderer = group.create_task(
            wander(doors, conversation, turn, length=len(TEXT), times=TIMES)
        )
        await read(program.follow(turn), screen, length=after(0.6))
        shown, kept = screen.text, _kept(server, turn)
        server.kill()
        await asyncio.to_thread(server.start)
        await whole(program, turn, screen)
    assert screen.text == wanderer.result().text == TEXT
    assert_nothing_twice(screen)
    assert_nothing_twice(wanderer.result())
    assert_little_was_told_again(screen, shown, kept, report)
    server.restart()
    await assert_told_from_rows(program, turn, screen)


def _kept(server: ServerProcess, turn: str) -> str:
    path = server.data / "parley.sqlite3"
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as rows:
        query = "SELECT partial FROM conversations_turn WHERE id = ?"
        (partial,) = rows.execute(query, [turn]).fetchone()
    rows.close()
    return kept_text(partial)
