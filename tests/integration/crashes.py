"""A person whose server crashes, and the laws that hold at any moment.

The same laws for both deliveries: every turn is final within a lease and ten seconds,
no event is delivered twice, no tool that must run once runs twice, and nothing stays in
progress.
"""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
from django.conf import settings

from tests.integration.clients import Program, Screen
from tests.integration.following import BROKEN, assert_nothing_twice, read, whole
from tests.serving import ServerProcess

SETTINGS = {"DJANGO_SETTINGS_MODULE": "tests.settings_crash", "DRAIN_GRACE": "0.2"}
FINAL = settings.TURN_LEASE + 10  # seconds after a crash in which all must be final
CRASH = 150  # seconds in which a process comes to its crash point
WORDS = 100  # at the demo's pace some seconds
NUMBERS = " ".join(str(number) for number in range(1, WORDS + 1))

ACT = "Please use act_once, act_same and act_later."
APPROVED_CALL = "Please use act_asked."
ELSEWHERE = "Please use act_elsewhere."
LONG = f"/long {WORDS}"
CALL_ID_KEY = "parley:call_id"  # on a message that delivers a result
ONCE = ("act_once", "act_later", "act_asked", "act_elsewhere")

RUNS = {  # where a process crashes that runs turns, and at what question
    **{
        f"{name}:{side}": question
        for question, names in (
            (
                ACT,
                (
                    "claim_store.claim_and_read",
                    "turn_loader.load",
                    "turn_store.advance",
                    "turn_store.advance#2",
                    "turn_store.finish",
                    "background_store.claim",
                    "background_store.load",
                    "background_store.conclude",
                    "append",
                    "act_once",
                    "act_same",
                    "act_later",
                ),
            ),
            (APPROVED_CALL, ("question_store.suspend", "act_asked")),
            (ELSEWHERE, ("background_store.record_accepted",)),
            (LONG, ("lease_store.heartbeat", "turn_store.release")),
        )
        for name in names
        for side in ("before", "after")
    },
    "append:after#6": ACT,
    # The end is committed; what follows it is not.
    "turn_store.finish:inside": LONG,
}
DOORS = {  # and one that takes messages and decisions in
    "accept:before": LONG,
    "accept:inside": LONG,
    "accept:after": LONG,
    "decide:before": APPROVED_CALL,
    "decide:after": APPROVED_CALL,
}


def spelled(crash_point: str) -> str:
    """`name#2:side` as the settings want it: `name:side#2`."""
    name, _, side = crash_point.partition(":")
    name, _, count = name.partition("#")
    return f"{name}:{side}#{count}" if count else crash_point


class Person:
    """Sends a message, follows its turn and approves its calls; if a server is lost,
    the next one is tried."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._programs = cycle(programs)
        self._program = next(self._programs)
        self.screen = Screen()
        self.conversation = self.turn = ""
        self.key = uuid.uuid4().hex

    async def begin(self) -> None:
        self.conversation = await self._program.conversation()

    async def live(self, question: str) -> None:
        """To the end of all that comes of the question."""
        following = asyncio.create_task(self._follow())
        try:
            while not self.turn:
                await self._create_turn(question)
            while not await self._is_settled():
                await self._agree()
                await asyncio.sleep(0.1)
            await following
        finally:
            following.cancel()

    async def _create_turn(self, question: str) -> None:
        try:
            self.turn = await self._program.create_turn(
                self.conversation, question, key=self.key
            )
        except httpx.TransportError:
            await self._try_another()

    async def _follow(self) -> None:
        """What a page shows meanwhile."""
        while not self.screen.over:
            await asyncio.sleep(0.02)
            if self.turn:
                with suppress(*BROKEN):
                    events = self._program.follow(self.turn, self.screen.position)
                    await read(events, self.screen)

    async def _agree(self) -> None:
        for each in await self._get("/api/questions/") or ():
            if each["conversation"] == self.conversation:
                url = f"/api/questions/{each['id']}/answer/"
                answer = await self._send("POST", url, json={"action": "accept"})
                assert answer is None or answer.status_code in (200, 409)

    async def _is_settled(self) -> bool:
        """All turns are over, and all background results are delivered."""
        turns, calls = await self.turns(), await self.calls()
        return (
            bool(turns)
            and all(turn["finished_at"] for turn in turns)
            and all(call["delivered_in"] or call["blocking"] for call in calls)
        )

    async def turns(self) -> list[dict[str, Any]]:
        return await self._all("turns")

    async def calls(self) -> list[dict[str, Any]]:
        return await self._all("tool-calls")

    async def _all(self, what: str) -> list[dict[str, Any]]:
        found = await self._get(f"/api/conversations/{self.conversation}/{what}/")
        return found["results"] if found else []

    async def _get(self, path: str) -> Any:
        answer = await self._send("GET", path)
        return answer.json() if answer else None

    async def _send(
        self, method: str, path: str, **options: Any
    ) -> httpx.Response | None:
        """None where the server went away."""
        try:
            async with self._program.http() as http:
                return await http.request(method, path, **options)
        except httpx.TransportError:
            await self._try_another()
            return None

    async def _try_another(self) -> None:
        self._program = next(self._programs)
        await asyncio.sleep(0.05)

    async def assert_whole(self, question: str) -> None:
        """One turn for the message, and one for each background result that no other
        turn delivers; the screen shows what the rows contain."""
        turns, calls = await self.turns(), await self.calls()
        assert turns[0]["id"] == self.turn
        items = [item for turn in turns for item in turn["items"]]
        delivered = [item[CALL_ID_KEY] for item in items if CALL_ID_KEY in item]
        in_background = [call for call in calls if not call["blocking"]]
        assert len(delivered) == len(set(delivered)) == len(in_background)
        assert all(CALL_ID_KEY in turn["items"][0] for turn in turns[1:])
        assert {turn["status"] for turn in turns} == {"completed"}
        assert not [item for item in items if item.get("status") == "in_progress"]
        assert {call["state"] for call in calls} <= {"completed", "unknown"}
        assert_nothing_twice(self.screen)
        late = await whole(self._program, self.turn)
        assert late.text == self.screen.text
        if question == LONG:
            assert late.text == NUMBERS

    async def assert_effects(self, traces: Path) -> None:
        """A call that must run once ran at most once, and did where it says so; a
        repeatable call had the same key each time."""
        lines = _lines(traces)
        effects = Counter(line.split()[0] for line in lines)
        assert all(effects[name] <= 1 for name in ONCE)
        assert len({line for line in lines if line.startswith("act_same")}) <= 1
        for call in await self.calls():
            assert call["state"] == "unknown" or effects[call["name"]] >= 1


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


async def crashed(server: ServerProcess, person: Person, crash_point: str) -> None:
    """Returns when the server has crashed at this place."""
    process, server.process = server.process, None
    assert process
    if crash_point.startswith("turn_store.release"):
        while not person.screen.text:
            await asyncio.sleep(0.02)
        process.terminate()

    def wait() -> int:
        with process:
            try:
                return process.wait(CRASH)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"no process came to {crash_point}") from None

    assert await asyncio.to_thread(wait) == -9
    assert "Traceback" not in server.log()
