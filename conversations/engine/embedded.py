"""The engine in one process: tasks under a semaphore, logs in memory, one database
file.

Whoever holds the lock on the data folder is the only one who runs turns, so at its
start every turn found running is one whose process is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from channels.layers import get_channel_layer
from django.conf import settings

from conversations.engine import rows
from conversations.engine.database import Database
from conversations.engine.log import Entry, MemoryLog, Position, entries_after
from conversations.engine.replay import Over, replay
from conversations.engine.run import Run

logger = logging.getLogger(__name__)

BEAT = 1.0  # seconds between snapshots of what was said
SWEEP = 2.0  # seconds between looks for turns that nobody runs
SWEPT = 500  # turns a sweep takes up at the most


def group_of(conversation_id: str) -> str:
    """The channel-layer group of hints about a conversation."""
    return f"conversation.{conversation_id}"


class EmbeddedEngine:
    """Made on the server's event loop by `start`, gone with `drain`."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.draining = False
        self.runs: dict[str, Run] = {}
        self._log = MemoryLog()
        self._database = Database()
        self._slots = asyncio.Semaphore(settings.TURN_CONCURRENCY)
        self._tasks: set[asyncio.Task[None]] = set()
        self._wanted: set[str] = set()  # turns that have a task
        self._stopped = asyncio.Event()

    async def start(self) -> None:
        found = await self._database.write(rows.release_all)
        if found:
            logger.info("%d interrupted turns will go on", found)
        self._keep(self._every(BEAT, self._beat), name="heartbeat")
        self._keep(self._every(SWEEP, self._sweep), name="sweep")
        await self._sweep()

    async def drain(self, grace: float) -> None:
        """Take up nothing new, give runs `grace` seconds, release the others."""
        self.draining = True
        self._log.wake_all()
        if running := [t for t in self._tasks if t.get_name() == "running"]:
            await asyncio.wait(running, timeout=grace)
        for run in list(self.runs.values()):
            run.cancel("released")
        self._stopped.set()
        tasks = list(self._tasks)
        for task in tasks:
            if task.get_name() in ("heartbeat", "sweep", "queued"):
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._database.close()

    # Queue

    def submitted(self, turn_id: str, conversation_id: str) -> None:
        self.put(turn_id)
        if conversation_id:
            self._keep(announce(conversation_id, turn_id), name="hint")

    def put(self, turn_id: str) -> None:
        """Take the turn up as soon as there is room; again is harmless."""
        if self.draining or turn_id in self._wanted:
            return
        self._wanted.add(turn_id)
        self._keep(self._work(turn_id), name="queued")

    def cancel(self, turn_id: str) -> None:
        if run := self.runs.get(turn_id):
            run.cancel()
        else:
            self.put(turn_id)  # to end it in order

    async def _work(self, turn_id: str) -> None:
        try:
            async with self._slots:
                claim = await self._database.write(rows.claim, turn_id)
                if claim is None or self.draining:
                    return
                task = asyncio.current_task()
                assert task is not None
                task.set_name("running")  # drain lets it end by itself
                log = self._log.open(turn_id)
                run = self.runs[turn_id] = Run(claim, log, self._database)
                await run.main()
        finally:
            self._wanted.discard(turn_id)
            self.runs.pop(turn_id, None)
        self._log.expire(turn_id)
        if run.next_turn:
            self.put(run.next_turn)

    # Log

    async def follow(
        self, turn_id: str, after: Position | None
    ) -> AsyncGenerator[list[Entry], None]:
        """Entries after `after`, past and to come; ends with the turn, or at drain."""
        while not self.draining:
            log = self._log.get(turn_id)
            if log is None or not log.entries:
                if over := await self._over(turn_id):
                    if batch := over.after(after):
                        yield batch
                    return
                log = self._log.open(turn_id)
                if not log.entries:
                    await log.changed()
                    continue
            if batch := entries_after(log.entries, after):
                after = batch[-1].place
                yield batch
            if log.ended and (after is None or after >= log.entries[-1].place):
                return
            if not log.entries or log.entries[-1].place <= (after or Position(0, 0)):
                await log.changed()

    def forget(self, turn_id: str) -> None:
        if turn_id not in self._wanted:
            self._log.drop(turn_id)

    async def is_told(self, turn_id: str, after: Position) -> bool:
        """True where nothing comes after `after` any more."""
        log = self._log.get(turn_id)
        if log is not None and log.entries:
            return log.ended and after >= log.entries[-1].place
        over = await self._over(turn_id)
        return over is not None and not over.after(after)

    async def _over(self, turn_id: str) -> Over | None:
        return await self._database.read(replay, turn_id)

    # Beats

    async def _beat(self) -> None:
        runs = list(self.runs.values())
        if not runs:
            return
        beats = {run.claim: run.snapshot() for run in runs}
        heard = await self._database.write(rows.heartbeat, beats)
        for turn_id in heard.lost:
            if run := self.runs.get(turn_id):
                run.cancel("fenced")
        for turn_id in heard.stopped:
            if run := self.runs.get(turn_id):
                run.cancel()

    async def _sweep(self) -> None:
        for turn_id in await self._database.read(rows.to_sweep, SWEPT):
            self.put(turn_id)

    async def _every(self, seconds: float, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), seconds)
                return
            try:
                await act()
            except Exception:
                # The database may be back at the next beat; leases outlast a few.
                logger.exception("the engine's %s failed", act.__name__)

    def _keep(self, coroutine: Awaitable[None], *, name: str) -> None:
        task = asyncio.ensure_future(coroutine)
        assert isinstance(task, asyncio.Task)
        task.set_name(name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def announce(conversation_id: str, turn_id: str) -> None:
    """A hint for open pages; nothing depends on its arrival."""
    layer = get_channel_layer()
    if layer is not None:
        await layer.group_send(
            group_of(conversation_id), {"type": "turn.queued", "turn": turn_id}
        )
