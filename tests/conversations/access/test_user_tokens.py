"""The tokens of an answer, charged to the minute of the user who sent the message."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations import engine
from conversations.access.admission import check_user_tokens_available
from conversations.access.errors import TooFast
from conversations.models import AccessToken, Conversation
from llm.wire.deltas import TextDelta, UsageDelta
from llm.wire.items import user_message

pytestmark = pytest.mark.django_db(transaction=True)


async def _answer(conversation: Conversation, **fields: Any) -> None:
    items = [user_message("Hi")]
    opened = await sync_to_async(conversation.open_turn)(items, **fields)
    turn = opened.turn
    engine.submit(turn.pk, conversation.pk)
    await engine.response_of(turn.pk)


async def test_an_answer_uses_tokens_of_its_user(
    conversation: Conversation, say: Any, settings: Any, running: None
):
    settings.USER_TOKENS_PER_MINUTE = 1000
    say([TextDelta(0, "Hello."), UsageDelta(900, 300)])
    check_user_tokens_available(conversation.owner, 10)
    await _answer(conversation)
    with pytest.raises(TooFast, match="You may take 1000 tokens a minute"):
        await sync_to_async(check_user_tokens_available)(conversation.owner, 10)


async def test_an_answer_to_a_token_does_not(
    conversation: Conversation, say: Any, settings: Any, running: None
):
    settings.USER_TOKENS_PER_MINUTE = 1000
    say([TextDelta(0, "Hello."), UsageDelta(900, 300)])
    issue = sync_to_async(AccessToken.issue)
    token, _ = await issue(conversation.owner, "test")
    await _answer(conversation, access_token=token)
    await sync_to_async(check_user_tokens_available)(conversation.owner, 10)
