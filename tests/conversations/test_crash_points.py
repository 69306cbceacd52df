"""`kill -9` at every transition of the protocol: whatever the moment, the turn comes to
its end after a restart, nothing is told twice, and no tool that must run once runs
twice."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serving import Deadline, ServerProcess

from .clients import Program, Screen

pytestmark = pytest.mark.server

QUESTION = "Please use act_once, act_same and act_later."
PLACES = [
    *(
        f"{name}:{side}"
        for name in (
            "rows.claim",
            "load.load",
            "rows.advance",
            "rows.advance#2",
            "rows.finish",
            "background_rows.claim",
            "background_rows.load",
            "background_rows.conclude",
            "append",
            "act_once",
            "act_same",
            "act_later",
        )
        for side in ("before", "after")
    ),
    "append:after#6",
]


def spelled(place: str) -> str:
    """`name#2:side` as the settings want it: `name:side#2`."""
    name, _, side = place.partition(":")
    name, _, count = name.partition("#")
    return f"{name}:{side}#{count}" if count else place


SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.settings_crash"}
IN_A_HURRY = """
from llm.models import LanguageModel
LanguageModel.objects.filter(name="demo").update(name="demo-fast")
"""


@pytest.fixture(scope="module")
def begun(
    tmp_path_factory: pytest.TempPathFactory, migrated_data: Path
) -> tuple[Path, str]:
    """A data folder to copy, and a token that is good in all copies."""
    data = tmp_path_factory.mktemp("crash") / "data"
    shutil.copytree(migrated_data, data)
    server = ServerProcess(data, SETTINGS).start()
    token = server.create_token()
    server.manage("shell", "-v0", "-c", IN_A_HURRY)
    server.stop()
    return data, token


@pytest.fixture
def fallible(begun: tuple[Path, str], tmp_path: Path) -> Iterator[ServerProcess]:
    shutil.copytree(begun[0], tmp_path / "data")
    server = ServerProcess(tmp_path / "data", SETTINGS)
    yield server
    if server.process:
        server.kill()


@pytest.mark.parametrize("place", PLACES)
async def test_a_crash_anywhere_loses_and_repeats_nothing(
    fallible: ServerProcess, begun: tuple[Path, str], place: str
):
    server = fallible
    server.environment["CRASH_AT"] = spelled(place)
    server.start()
    program = Program(server, token=begun[1])
    conversation = await program.conversation()
    turn, screen = await _ask(program, conversation), Screen()
    await _watch(program, turn, screen)
    _wait_for_the_crash(server)
    del server.environment["CRASH_AT"]
    server.start()
    turn = turn or await _turn_of(program, conversation)
    assert turn, "what was answered with 202 is there"
    await _watch(program, turn, screen)
    told = await program.turn(turn)
    assert told["status"] == "completed"
    assert screen.over
    await _until_all_is_told(program, conversation)
    _assert_effects(server)


async def _ask(program: Program, conversation: str) -> str | None:
    try:
        return await program.ask(conversation, QUESTION)
    except httpx.TransportError:
        return None  # it crashed before it could answer


async def _watch(program: Program, turn: str | None, screen: Screen) -> None:
    try:
        async for position, event in program.follow(turn or "", screen.position):
            screen.show(position, event)
    except (httpx.TransportError, AssertionError):
        return


def _wait_for_the_crash(server: ServerProcess) -> None:
    process, server.process = server.process, None
    assert process
    with process, Deadline(process):
        assert process.wait() == -9
    assert not any("Traceback" in line for line in server.log().splitlines())


async def _turn_of(program: Program, conversation: str) -> str | None:
    async with program.http() as http:
        turns = await http.get(f"/api/conversations/{conversation}/turns/")
    return next((turn["id"] for turn in turns.json()["results"]), None)


async def _until_all_is_told(program: Program, conversation: str) -> None:
    """The result of the call in the background too, and exactly once."""
    while True:
        async with program.http() as http:
            base = f"/api/conversations/{conversation}"
            calls = (await http.get(f"{base}/tool-calls/")).json()["results"]
            turns = (await http.get(f"{base}/turns/")).json()["results"]
        over = all(turn["finished_at"] for turn in turns)
        if over and all(c["delivered_in"] or c["blocking"] for c in calls):
            break
    told = [
        item["parley:call_id"]
        for turn in turns
        for item in turn["items"]
        if "parley:call_id" in item
    ]
    assert len(told) == len(set(told)) == 1
    assert {call["state"] for call in calls} <= {"completed", "unknown"}
    assert not any(turn["status"] == "in_progress" for turn in turns)


def _assert_effects(server: ServerProcess) -> None:
    path = server.data / "traces"
    traces = path.read_text().splitlines() if path.exists() else []
    effects = Counter(trace.split()[0] for trace in traces)
    keys = {trace for trace in traces if trace.startswith("act_same")}
    assert effects["act_once"] <= 1
    assert effects["act_later"] <= 1
    assert len(keys) <= 1
