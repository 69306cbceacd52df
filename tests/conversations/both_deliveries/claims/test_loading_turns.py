"""A turn whose loading takes longer than its lease: one process runs it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db.models.functions import Now

from conversations.engine import claim_store
from conversations.engine.database.executor import Database
from conversations.engine.engine import Engine
from conversations.engine.event_log import MemoryLog
from conversations.engine.loading import turn_loader
from conversations.models import Conversation, Turn
from llm.wire.items import user_message
from tests.conversations.both_deliveries.test_background import ANSWER
from tests.conversations.script import Script

pytestmark = pytest.mark.django_db(transaction=True)

PATIENT = 60.0  # seconds; no test takes as many


class SlowLoading:
    """Loads a turn once it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self._load = turn_loader.load
        monkeypatch.setattr(turn_loader, "load", self.load)

    def load(self, *args: Any) -> Any:
        self.has_begun.set()
        assert self.may_end.wait(PATIENT)
        return self._load(*args)


async def start(engine: Engine, slow: SlowLoading, conversation: Conversation) -> Turn:
    turn = await sync_to_async(_open)(conversation)
    engine.put(turn.pk)
    assert await asyncio.to_thread(slow.has_begun.wait, PATIENT)
    return turn


async def go_on(engine: Engine, slow: SlowLoading, turn: Turn) -> None:
    slow.may_end.set()
    while turn.pk in engine.dispatcher.active_turns:
        await asyncio.sleep(0)
    await engine.drain(grace=PATIENT)


def _open(conversation: Conversation) -> Turn:
    return conversation.open_turn([user_message("Hi")]).turn


def _lapse(turn: Turn) -> None:
    Turn.objects.filter(pk=turn.pk).update(lease_until=Now() - timedelta(seconds=1))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowLoading:
    return SlowLoading(monkeypatch)


async def test_the_lease_of_a_turn_that_loads_is_renewed(
    conversation: Conversation, say: Callable[..., Script], slow: SlowLoading
):
    say(ANSWER)
    engine = Engine(MemoryLog(), Database(writers=3))
    turn = await start(engine, slow, conversation)
    await sync_to_async(_lapse)(turn)
    await engine.beat()
    assert await sync_to_async(claim_store.claim)(turn.pk) is None
    await go_on(engine, slow, turn)
    await turn.arefresh_from_db()
    assert (turn.status, turn.epoch) == (Turn.Status.COMPLETED, 1)


async def test_a_turn_that_was_claimed_elsewhere_while_it_loads_calls_no_provider(
    conversation: Conversation, say: Callable[..., Script], slow: SlowLoading
):
    calls = say(ANSWER)
    engine = Engine(MemoryLog(), Database(writers=3))
    turn = await start(engine, slow, conversation)
    await sync_to_async(_lapse)(turn)
    assert await sync_to_async(claim_store.claim)(turn.pk) is not None
    await engine.beat()
    await go_on(engine, slow, turn)
    assert calls.requests == []
    await turn.arefresh_from_db()
    assert (turn.status, turn.epoch) == (Turn.Status.RUNNING, 2)
