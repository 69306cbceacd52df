"""The first subscriber of a turn that was opened just now, in a process that runs no
turns."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from django.db import OperationalError

from conversations.engine import subscriptions
from conversations.engine.event_log import MemoryLog, Position, TurnLog
from conversations.engine.finished_turn_events import FinishedTurn
from conversations.engine.process.engine_tasks import EngineTasks
from conversations.engine.subscriptions import Subscriptions
from conversations.models import Turn
from llm.wire.response_builder import ResponseBuilder

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
    reader = Subscriptions(EngineTasks(), log, rows, {}, lambda turn_id: None)
    if is_new:
        reader.note_new(TURN)
    async with aclosing(reader.subscribe(TURN, None)) as batches:
        assert await anext(batches)
    assert rows.reads == (0 if is_new else 1)


class FinishedRows:
    """Whose turn is finished. The first read fails."""

    def __init__(self) -> None:
        self.has_failed = False

    async def read(self, *_: Any) -> FinishedTurn:
        if not self.has_failed:
            self.has_failed = True
            raise OperationalError("database is locked")
        log = TurnLog(TURN)
        builder = ResponseBuilder(id=TURN, model="m")
        log.append(2, [*builder.start(), *builder.complete()])
        return FinishedTurn(list(log.entries), Position(1, 2))


async def test_a_turn_that_is_over_is_read_again_after_a_failure(monkeypatch):
    monkeypatch.setattr(subscriptions, "READ_AGAIN", 0.0)
    rows: Any = FinishedRows()
    reader = Subscriptions(EngineTasks(), MemoryLog(), rows, {}, lambda turn_id: None)
    entries = [entry async for batch in reader.subscribe(TURN, None) for entry in batch]
    assert entries[-1].is_last
