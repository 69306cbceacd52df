"""The first subscriber of a turn that was opened just now, in a process that runs no
turns."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from conversations.engine.event_log import TurnLog
from conversations.engine.process.engine_tasks import EngineTasks
from conversations.engine.subscriptions import Subscriptions
from conversations.models import Turn
from llm.wire.response import ResponseBuilder

TURN = "resp_1"


class Log:
    """Whose turn gets its first events once its subscriber waits for them."""

    def __init__(self) -> None:
        self.log = TurnLog(TURN)

    async def subscribe(self, turn_id: str) -> TurnLog:
        events = ResponseBuilder(id=turn_id, model="m").start()
        asyncio.get_running_loop().call_soon(self.log.append, 1, events)
        return self.log

    def unsubscribe(self, log: TurnLog) -> None: ...


class Rows:
    """Whose turn is queued."""

    def __init__(self) -> None:
        self.reads = 0

    async def read(self, *_: Any) -> str:
        self.reads += 1
        return Turn.Status.QUEUED


@pytest.mark.parametrize("is_new", [True, False])
async def test_only_that_of_another_turn_reads_the_status(is_new):
    rows: Any = Rows()
    log: Any = Log()
    subscriptions = Subscriptions(EngineTasks(), log, rows, {}, lambda turn_id: None)
    if is_new:
        subscriptions.note_new(TURN)
    async with aclosing(subscriptions.subscribe(TURN, None)) as batches:
        assert await anext(batches)
    assert rows.reads == (0 if is_new else 1)
