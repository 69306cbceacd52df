"""Runs the calls whose results the model does not wait for.

All state is in the rows, so any process can continue a call: it starts calls that no
process runs, polls work that goes on elsewhere when it is due, and ends calls that took
too long or were cancelled. One loop looks for such calls; notifications make it look at
once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

from django.db import Error as DatabaseError

from conversations.engine import background_rows as rows
from conversations.engine.background_rows import CallClaim, CallWork, Concluded
from conversations.engine.database import Database
from tools.errors import ToolError
from tools.execute import Outcome, Progress, execute, where
from tools.registry import Context, Tool

logger = logging.getLogger(__name__)

TAKEN = 50  # calls that one sweep starts
TRIES = 5  # retries of a write, before the lease is left to expire
T = TypeVar("T")


class Background:
    """The background calls that run in this process. Create it on the engine's event
    loop.

    `submit` takes the ids of a new turn and of its conversation. `notify_result` takes
    the id of a conversation whose open turn has a new result to deliver.
    """

    def __init__(
        self,
        database: Database,
        *,
        submit: Callable[[str, str], None],
        news: Callable[[str], None],
    ) -> None:
        self._database = database
        self._submit = submit
        self._news = news
        self._running: dict[CallClaim, asyncio.Task[None]] = {}
        self._progress: dict[CallClaim, str] = {}
        self._stopped: set[CallClaim] = set()  # by a person
        self._abandoned: set[CallClaim] = set()  # given up, but their threads still run
        self._looking: asyncio.Task[None] | None = None
        self._again = False
        self._draining = False

    def wake(self) -> None:
        """Look for calls to start, now."""
        self._again = True
        if not self._draining and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look_again())

    async def beat(self) -> None:
        """Renew the leases; cancel calls that another process has claimed or a person
        has cancelled."""
        if not self._running:
            return
        beats = {mine: self._progress.get(mine, "") for mine in self._running}
        lost, stopped = await self._database.beat(rows.renew, beats)
        newly = set(stopped) - self._stopped
        self._stopped |= newly
        for mine in [*lost, *newly]:
            if task := self._running.get(mine):
                task.cancel()

    async def sweep(self) -> None:
        """Start the calls that no process runs."""
        if self._draining:
            return
        for pk in await self._database.read(rows.due, TAKEN):
            if not self._draining:
                await self._take(pk)
        if await self._database.read(rows.unheard, 1):
            for ids in await self._database.write(rows.wake_unheard, TAKEN):
                self._submit(*ids)

    def begin_drain(self) -> list[asyncio.Task[None]]:
        """Start no more calls. Returns the tasks that still run."""
        self._draining = True
        return list(self._running.values())

    async def drain(self) -> None:
        """Cancel the running calls and release them to other processes."""
        tasks = self.begin_drain()
        claims = list(self._running)
        if self._looking:
            tasks.append(self._looking)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if claims:
            await self._database.write(rows.release, claims)

    async def _look_again(self) -> None:
        while self._again and not self._draining:
            self._again = False
            try:
                await self.beat()
                await self.sweep()
            except DatabaseError as exc:
                logger.warning("no look at background calls: %s", type(exc).__name__)

    async def _take(self, pk: int) -> None:
        mine = await self._database.write(rows.claim, pk)
        if mine is None:
            return
        task = asyncio.create_task(self._work(mine))
        self._running[mine] = task
        task.add_done_callback(lambda _: self._forget(mine))

    def _forget(self, mine: CallClaim) -> None:
        self._running.pop(mine, None)
        self._progress.pop(mine, None)
        self._stopped.discard(mine)
        self._abandoned.discard(mine)

    async def _work(self, mine: CallClaim) -> None:
        try:
            work = await self._database.read(rows.load, mine)
            outcome = work.outcome or await self._outcome(mine, work)
            await self._conclude(mine, outcome)
        except asyncio.CancelledError:
            if mine not in self._stopped:
                raise  # released, or claimed by another process
            self._uncancel()
            await self._conclude(mine, _given_up(is_over=mine not in self._abandoned))
        except Exception as exc:
            # After the lease has expired, a sweep takes the call up again.
            logger.error("background call %d failed: %s", mine.pk, where(exc))

    @staticmethod
    def _uncancel() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()

    async def _outcome(self, mine: CallClaim, work: CallWork) -> Outcome:
        tools = {name: _timed(tool, work) for name, tool in work.tools.items()}
        context = replace(
            work.context, abandoned=lambda call_id: self._abandoned.add(mine)
        )
        happenings = execute([work.call], tools, context)
        async with aclosing(happenings):
            async for happening in happenings:
                if isinstance(happening, Progress):
                    self._progress[mine] = happening.message
                else:
                    return happening
        raise AssertionError("a call has one outcome")

    async def _conclude(self, mine: CallClaim, outcome: Outcome) -> None:
        if outcome.accepted is not None:
            await self._written(rows.goes_on, mine, outcome.accepted)
            return
        concluded = await self._written(rows.conclude, mine, outcome)
        if concluded is not None:
            self.told(concluded)

    def told(self, concluded: Concluded) -> None:
        """Deliver a stored result to the model. Call it on the engine's loop."""
        if concluded.new_turn:
            self._submit(concluded.new_turn, concluded.conversation_id)
        else:
            self._news(concluded.conversation_id)

    async def _written(self, write: Callable[..., T], *values: object) -> T:
        """Retry the write while the database is unavailable: the work is done, and its
        result must not be lost."""
        for delay in _delays():
            try:
                return await self._database.write(write, *values)
            except DatabaseError:
                await asyncio.sleep(delay)
        return await self._database.write(write, *values)


def _delays() -> Sequence[float]:
    return [0.1 * 2**number for number in range(TRIES)]


def _timed(tool: Tool, work: CallWork) -> Tool:
    """The tool with the remaining time as its timeout; a call that was accepted
    elsewhere polls for its result instead of running."""
    seconds = max(work.seconds_left, 0.001)
    if work.token is None:
        return replace(tool, timeout=seconds)
    return replace(tool, timeout=seconds, call=_polling(tool, work.token))


def _polling(
    tool: Tool, token: str
) -> Callable[[Context, dict[str, Any]], Awaitable[Any]]:
    async def poll(context: Context, arguments: dict[str, Any]) -> Any:
        if tool.poll is None:
            raise ToolError("no result was posted, and there is nowhere to ask for it.")
        return await tool.poll(context, token)

    return poll


def _given_up(*, is_over: bool) -> Outcome:
    state, text = "cancelled", "A person cancelled this call."
    if not is_over:
        state = "abandoned"
        text += " Its thread cannot be stopped: what it does may still take effect."
    return Outcome("", state, f"Error: {text}", text, 0.0)
