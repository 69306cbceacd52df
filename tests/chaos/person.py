"""A person who sends one message and follows its turn through server crashes."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from typing import Any

import httpx

from tests.integration.clients import Program, Screen
from tests.integration.following import BROKEN, read, whole

from .offered import model_of, options_of
from .stored_turn import StoredTurn
from .wish import Wish

LOOK = 0.5  # seconds between looks at another process's rows, which send no event


class Person:
    """`wire` names the model. If a server is lost, the next one is tried."""

    def __init__(self, programs: Sequence[Program], wish: Wish, wire: str) -> None:
        self.wish, self.wire = wish, wire
        self.screen = Screen()
        self.turn = ""
        self.settled_at = math.inf  # seconds, monotonic
        self.record: StoredTurn | None = None  # once all is settled
        self._programs = cycle(programs)
        self._program = next(self._programs)
        self._conversation = ""

    async def send(self) -> None:
        key = uuid.uuid4().hex
        model = model_of(self.wire, self.wish.fault)
        while not self._conversation:
            with suppress(*BROKEN, KeyError, ValueError):
                self._conversation = await self._program.conversation()
        while not self.turn:
            try:
                self.turn = await self._program.create_turn(
                    self._conversation,
                    self.wish.text(),
                    model=model,
                    key=key,
                    options=options_of(self.wish),
                )
            except httpx.TransportError:
                await self._try_another()

    async def live(self) -> StoredTurn:
        """Send the message and follow it to the end of all that comes of it."""
        await self.send()
        following = asyncio.create_task(self._follow())
        try:
            await following
            while not (await self._look()).is_settled:
                await asyncio.sleep(LOOK)
            late = Screen()
            await whole(self._program, self.turn, late)
        finally:
            following.cancel()
        self.record = await self._look()
        self.record.shown = (self.screen, late)
        self.settled_at = time.monotonic()
        return self.record

    async def output(self) -> list[dict[str, Any]]:
        """What is on record of the first turn's answer, open items too."""
        turn = await self._get(f"/api/turns/{self.turn}/") if self.turn else None
        return turn["response"]["output"] if turn else []

    async def has_results(self) -> bool:
        """Whether the calls in the background are over."""
        calls = await self._all("tool-calls") if self._conversation else []
        states = [call["state"] for call in calls if not call["blocking"]]
        return bool(states) and "executing" not in states

    async def situation(self) -> list[str]:
        """The turns and calls on record, a line each."""
        record = await self._look()
        turns = [
            f"turn {turn['id']}: {turn.get('status')} epoch {turn.get('epoch')}, "
            f"{[(i['type'], i.get('status')) for i in turn['items']]}"
            for turn in record.turns
        ]
        return [*turns, *(f"call {c['call_id']}: {c['state']}" for c in record.calls)]

    def epochs(self) -> int:
        """How often the turn was taken up, as the person saw it."""
        return int((self.screen.position or "1-0").partition("-")[0])

    async def _follow(self) -> None:
        while not self.screen.over:
            with suppress(*BROKEN):
                events = self._program.follow(self.turn, self.screen.position)
                await read(events, self.screen)
            await asyncio.sleep(0.05)  # the server may be starting again

    async def _look(self) -> StoredTurn:
        turns = await self._all("turns")
        return StoredTurn(self.wish, self.wire, turns, await self._all("tool-calls"))

    async def _all(self, what: str) -> list[dict[str, Any]]:
        found = await self._get(f"/api/conversations/{self._conversation}/{what}/")
        rows: list[dict[str, Any]] = found["results"]
        return rows

    async def _get(self, path: str) -> Any:
        while True:
            try:
                async with self._program.http() as http:
                    answer = await http.get(path)
                if answer.status_code == 200:
                    return answer.json()
            except httpx.TransportError:
                pass
            await self._try_another()

    async def _try_another(self) -> None:
        self._program = next(self._programs)
        await asyncio.sleep(0.1)
