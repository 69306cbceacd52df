"""`kill -9` at every transition of the protocol: whatever the moment, the turn comes to
its end after a restart, no event is delivered twice, and no tool that must run once
runs twice."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from tests.integration.clients import Program, sign_in, socket
from tests.integration.crashes import (
    DOORS,
    FINAL,
    LONG,
    RUNS,
    SETTINGS,
    Person,
    crashed,
    spelled,
)
from tests.integration.following import whole
from tests.serving import ServerProcess

pytestmark = [pytest.mark.server, pytest.mark.slow]

#: Over SQLite an answer ends in one transaction, which has no inside.
PLACES = {**RUNS, **DOORS}
del PLACES["turn_store.finish:inside"]


@pytest.fixture(scope="module")
def begun(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path
) -> tuple[Path, str]:
    """A data folder to copy, and a token that is good in all copies."""
    data = tmp_path_factory.mktemp("crash") / "data"
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data, SETTINGS).start()
    token = server.create_token()
    server.stop()
    return data, token


@pytest.fixture
def fallible(begun: tuple[Path, str], tmp_path: Path) -> Iterator[ServerProcess]:
    shutil.copytree(begun[0], tmp_path / "data")
    server = ServerProcess(tmp_path / "data", SETTINGS)
    yield server
    if server.process:
        server.kill()


@pytest.mark.parametrize("crash_point", PLACES)
async def test_a_crash_anywhere_loses_and_repeats_nothing(
    fallible: ServerProcess, begun: tuple[Path, str], crash_point: str
):
    server, question = fallible, PLACES[crash_point]
    server.environment["CRASH_AT"] = spelled(crash_point)
    server.start()
    person = Person([Program(server, token=begun[1])])
    await person.begin()
    living = asyncio.create_task(person.live(question))
    try:
        await crashed(server, person, crash_point)
        del server.environment["CRASH_AT"]
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(FINAL):
            await living
    finally:
        living.cancel()
    await person.assert_whole(question)
    await person.assert_effects(server.data / "traces")


async def test_a_message_whose_answer_a_crash_cut_off_is_sent_again_as_the_same(
    fallible: ServerProcess, begun: tuple[Path, str]
):
    """Over the WebSocket, as pages do; over REST it is one of the places above."""
    server = fallible
    server.environment["CRASH_AT"] = "socket.accept:after"
    server.start()
    person = Person([Program(server, token=begun[1])])
    await person.begin()
    cookie = await sign_in(server, "admin")
    message = {"type": "turn.create", "input": LONG, "key": person.key}
    async with socket(server, person.conversation, cookie) as connection:
        await connection.send(json.dumps(message))
        with suppress(ConnectionClosed):
            raise AssertionError(await connection.recv())
    await crashed(server, person, "socket.accept:after")
    del server.environment["CRASH_AT"]
    await asyncio.to_thread(server.start)
    (turn,) = await person.turns()
    async with socket(server, person.conversation, cookie) as connection:
        await connection.send(json.dumps(message))
        queued = json.loads(await connection.recv())
    assert (queued["type"], queued["turn"]) == ("parley:turn.queued", turn["id"])
    async with asyncio.timeout(FINAL):
        await person.live(LONG)
    assert person.turn == turn["id"]
    await person.assert_whole(LONG)


async def test_what_waits_for_a_turn_goes_on_after_a_crash_behind_its_end(
    fallible: ServerProcess, begun: tuple[Path, str]
):
    """The end is committed, and nothing else that follows it."""
    server = fallible
    server.environment["CRASH_AT"] = "turn_store.finish:after"
    server.start()
    program = Program(server, token=begun[1])
    person = Person([program])
    await person.begin()
    first = await program.create_turn(person.conversation, "/long 20")
    second = await program.create_turn(person.conversation, "/echo Hello")
    await crashed(server, person, "turn_store.finish:after")
    del server.environment["CRASH_AT"]
    await asyncio.to_thread(server.start)
    async with asyncio.timeout(FINAL):
        screens = [await whole(program, turn) for turn in (first, second)]
    assert [screen.text for screen in screens] == [
        " ".join(map(str, range(1, 21))),
        "Hello",
    ]
    assert [turn["status"] for turn in await person.turns()] == ["completed"] * 2
