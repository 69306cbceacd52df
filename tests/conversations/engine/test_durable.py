"""Events are on the disk, and not only in the system's memory, when they are sent."""

from __future__ import annotations

import os

import pytest
from django.db import connection, transaction

from conversations import engine
from conversations.engine import subscriptions
from conversations.models import Conversation
from llm.db import durable_commit
from llm.wire.deltas import FinishDelta, TextDelta, ToolCallDelta
from llm.wire.items import user_message
from tools.models import PermittedTools
from tools.registry import RuntimeTool

pytestmark = pytest.mark.django_db(transaction=True)

CALL = [ToolCallDelta(0, "c1", "act", "{}"), FinishDelta("tool_calls")]


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were synchronized."""
    found: list[str] = []
    fsync = os.fsync

    def noting(file: int) -> None:
        found.append(os.readlink(f"/proc/self/fd/{file}"))
        fsync(file)

    monkeypatch.setattr(durable_commit.os, "fsync", noting)
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL synchronizes its own files")
    return found


def test_a_message_that_was_accepted_is_on_the_disk(
    conversation: Conversation, synced: list[str]
):
    with transaction.atomic():
        conversation.open_turn([user_message("Hi")])
        assert synced == [], "not before the commit"
    assert [path.endswith("-wal") for path in synced] == [True]


@pytest.mark.parametrize(("replay", "marks"), [("once", 2), ("safe", 0)])
async def test_the_marks_of_a_tool_that_must_not_run_twice_are_too(
    conversation, say, running, synced, monkeypatch, replay: str, marks: int
):
    at_call: list[int] = []

    async def act(context, arguments):
        at_call.append(len(synced))
        return "done"

    tool = RuntimeTool(
        name="act",
        description="",
        parameters={"type": "object"},
        call=act,
        replay=replay,
    )
    monkeypatch.setattr(
        "conversations.engine.loading.available_tools.permitted_tools",
        lambda turn: PermittedTools({"act": tool}),
    )
    say(CALL, [TextDelta(0, "Done."), FinishDelta("stop")])
    turn = await engine.open(lambda: conversation.open_turn([user_message("Act")]))
    opened = len(synced)
    await engine.response_of(turn.pk)
    assert len(synced) - opened == marks
    if marks:
        assert at_call == [opened + 1], "one before it runs"


async def test_a_subscriber_at_the_end_of_a_drain_does_not_wait(
    conversation, say, running, monkeypatch
):
    """It was let in, and the drain began while its turn was looked for."""
    opened = await engine.read(conversation.open_turn, [user_message("Hi")])
    turn = opened.turn
    looked = subscriptions.replay_or_status

    def slowly(turn_id: str):
        engine.require_engine().begin_drain()
        return looked(turn_id)

    monkeypatch.setattr(subscriptions, "replay_or_status", slowly)
    batches = [batch async for batch in engine.subscribe(turn.pk)]
    assert batches == []
    subscriber = engine.subscribe
    await engine.drain()
    with pytest.raises(engine.NotRunning):
        subscriber(turn.pk)
