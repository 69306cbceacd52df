"""An upgrade without a pause: what runs is replaced while turns run."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.chaos.provider import ChaosProvider
from tests.integration.clients import sign_in
from tests.integration.following import LONG
from tests.integration.upstream import counted
from tests.scaled import REDIS
from tests.serving import free_port

from .conversing import (
    ACTS,
    Act,
    Scene,
    ask_at_length,
    begin_response,
    build_acts,
    decide,
    finish_response,
    wait_for_approval,
)
from .doors import Doors
from .rollout import Rollout

AT_ONCE = 10  # acts
WORDS = 150  # of a response in the background: some seconds
LONG_ANSWERS, LATE = 4, "late"  # that run when the earlier version ends
RECORDED = 30  # seconds until all calls are on record


@dataclass
class Report:
    turns: int = 0
    done: Counter[str] = field(default_factory=Counter)  # by act
    migrated_in: float = 0.0  # seconds
    together: float = 0.0  # seconds in which both versions ran
    violations: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        done = ", ".join(f"{name} {count}" for name, count in self.done.items())
        return [
            f"{self.turns} turns ({done}), both versions for {self.together:.0f} s,"
            f" migrated in {self.migrated_in:.1f} s:"
            f" {len(self.violations)} violations",
            *(f"  VIOLATION {each}" for each in self.violations),
        ]


class Upgrade:
    """`turns` while both versions run, or for so many `seconds`; `pace`: the least
    seconds between the starts of two turns."""

    def __init__(self, rollout: Rollout, scene: Scene, pace: float = 0.0) -> None:
        self._rollout = rollout
        self._scene = scene
        self._pace = pace
        self._number = 0
        self.report = Report()

    async def run(self, turns: int, seconds: float = 0.0) -> Report:
        scene = self._scene
        async with asyncio.timeout(LONG):
            waiting = [await wait_for_approval(scene) for _ in range(2)]
        responses = [await begin_response(scene, WORDS)]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._do("at length", ask_at_length(scene, "early")))
            await self._add_new(turns)
            await self._do("decide", decide(scene, waiting[0]))
            await self._go_on(turns, seconds)
            responses.append(await begin_response(scene, WORDS))
            for number in range(LONG_ANSWERS):
                at_length = ask_at_length(scene, f"{LATE}{number}x")
                group.create_task(self._do("at length", at_length))
            await scene.provider.ledger.wait_until(self._are_streaming)
            await self._remove_old(turns)
            group.create_task(self._do("decide", decide(scene, waiting[1])))
            for response in responses:
                finishing = finish_response(scene, response, counted(WORDS))
                group.create_task(self._do("background", finishing))
        await self._check()
        return self.report

    async def _add_new(self, turns: int) -> None:
        rollout, began = self._rollout, time.monotonic()
        await asyncio.gather(self.drive(turns // 8), rollout.migrate())
        self.report.migrated_in = time.monotonic() - began
        await asyncio.gather(self.drive(turns // 8), rollout.start_new())
        self._scene.doors.open = [rollout.old_web, rollout.new_web]

    async def _go_on(self, turns: int, seconds: float) -> None:
        """With both versions."""
        began = time.monotonic()
        await self.drive(turns)
        while time.monotonic() < began + seconds:
            print(time.strftime("%H:%M"), *self.report.lines(), sep="\n", flush=True)
            await self.drive(turns)
        self.report.together = time.monotonic() - began

    def _are_streaming(self) -> bool:
        recorded = self._scene.provider.ledger.recorded
        late = {each.wish.id for each in recorded if each.wish.id.startswith(LATE)}
        return len(late) == LONG_ANSWERS

    async def _remove_old(self, turns: int) -> None:
        """As a load balancer does: no new requests, then the signal."""
        self._scene.doors.open = [self._rollout.new_web]
        codes, _ = await asyncio.gather(
            self._rollout.stop_old(), self.drive(turns // 8)
        )
        if codes != [0, 0]:
            self.report.violations.append(f"the earlier version ended with {codes}")

    async def drive(self, turns: int) -> None:
        room = asyncio.Semaphore(AT_ONCE)

        async def one(act: Act, id: str) -> None:
            try:
                await self._do(act.__name__, act(self._scene, id))
            finally:
                room.release()

        async with asyncio.TaskGroup() as group:
            for act in build_acts(self._scene.dice, turns):
                await room.acquire()
                self._number += 1
                group.create_task(one(act, f"n{self._number}x"))
                self.report.turns += ACTS[act][1]
                await asyncio.sleep(self._pace * ACTS[act][1])

    async def _do(self, name: str, act: Awaitable[list[str]]) -> None:
        self.report.done[name] += 1
        try:
            async with asyncio.timeout(LONG):
                found = await act
        except Exception as exc:  # each is a violation
            found = [f"ended with {exc!r}"]
        self.report.violations += [f"{name}: {each}" for each in found]

    async def _check(self) -> None:
        found = self.report.violations
        found += self._scene.provider.ledger.problems
        found += self._scene.doors.problems
        found += self._rollout.faults()
        found += await self._unrecorded()

    async def _unrecorded(self) -> list[str]:
        """Model calls that are not on record once."""
        for _ in range(RECORDED):
            wrong = await asyncio.to_thread(self._wrong_counts)
            if not wrong:
                break
            await asyncio.sleep(1)  # a process writes them later
        return wrong

    def _wrong_counts(self) -> list[str]:
        query = "SELECT turn_id, tags FROM llm_modelcall"
        with psycopg.connect(self._rollout.database.url) as rows:
            recorded = Counter(turn or tags for turn, tags in rows.execute(query))
        return [
            f"{actual} model calls of {', '.join(ids)} are on record, {count} were made"
            for ids, count in self._scene.calls.items()
            if (actual := sum(recorded[id] for id in ids)) != count
        ]


async def upgrade(
    folder: Path,
    old: Path,
    seed: int,
    *,
    turns: int,
    redis: str | None = REDIS,
    seconds: float = 0.0,
    pace: float = 0.0,
) -> Report:
    """`old`: the folder with the earlier version's code."""
    port, dice = free_port(), random.Random(seed)
    rollout = Rollout(folder, old, redis)
    try:
        async with ChaosProvider(port) as provider:
            await rollout.start_old(port)
            web = rollout.old_web
            token = await asyncio.to_thread(web.create_token)
            cookie = await sign_in(web, "admin")
            doors = Doors(token, cookie, dice, web)
            notes = rollout.data / "chaos-notes"
            scene = Scene(doors, provider, notes, dice)
            return await Upgrade(rollout, scene, pace).run(turns, seconds)
    finally:
        await asyncio.to_thread(rollout.end)
