"""A run that has lost its claim is stopped, and no later run of the same process."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations import engine
from conversations.engine import lease_store
from conversations.models import Conversation, Turn
from llm.wire.items import user_message
from tests.conversations.script import HANG

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("running"),
]


@pytest.fixture
async def run(conversation: Conversation, say: Any) -> Any:
    """The run of a turn that waits for its provider."""
    script = say([HANG])
    opened = await sync_to_async(conversation.open_turn)([user_message("Hi")])
    turn_id = opened.turn.pk
    engine.submit(turn_id, conversation.pk)
    async with asyncio.timeout(30):
        while not script.hanging:
            await asyncio.sleep(0)
    return engine.require_engine().runs[turn_id]


async def test_what_refuses_an_earlier_run_leaves_the_present_one(run: Any):
    dispatcher = engine.require_engine().dispatcher
    dispatcher.fence(replace(run.claim, epoch=run.claim.epoch - 1))
    assert run.state.stop is None
    dispatcher.fence(run.claim)
    assert run.state.stop == "fenced"


async def test_a_heartbeat_names_the_claims_that_it_was_asked_about(run: Any):
    beat = sync_to_async(lease_store.heartbeat)
    earlier = replace(run.claim, epoch=run.claim.epoch - 1)
    assert (await beat({earlier: None})).lost == [earlier]
    assert (await beat({run.claim: None})).lost == []
    await Turn.objects.aupdate(epoch=run.claim.epoch + 1)
    assert (await beat({run.claim: None})).lost == [run.claim]
