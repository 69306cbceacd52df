"""A person's limit counts for messages over the WebSocket, for responses in the
background and for the summaries of long chats."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from conversations.access.limits.admission import find_limits_left
from conversations.engine import notifications
from conversations.models import Conversation, Turn, UsageLimit
from conversations.streaming import consumers, conversation_access
from llm.models import LanguageModel
from llm.wire.deltas import FinishDelta, TextDelta, UsageDelta
from tests.conversations.both_deliveries.test_compaction import LONG, WINDOW
from tests.conversations.both_deliveries.test_engine import answer
from tests.conversations.gateway.forwarding import hosts
from tests.conversations.streaming.test_consumer import Page

pytestmark = pytest.mark.django_db(transaction=True)

DONE = [TextDelta(0, "Done."), FinishDelta("stop")]
SUMMARY = [TextDelta(0, "Tea."), UsageDelta(700, 9), FinishDelta("stop")]
ONE = {"requests": 1}
FEW_TOKENS = {"tokens": 5}
LITTLE_MONEY = {"cost": Decimal("0.000001")}


async def limit(user: User, **amounts: Any) -> None:
    row = UsageLimit(user=user, period="month", **amounts)
    await sync_to_async(row.full_clean)()
    await row.asave()


@pytest.fixture
def pages(
    running: None, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (consumers, conversation_access):
        monkeypatch.setattr(module, "user_from_session", lambda _: conversation.owner)
    monkeypatch.setattr(notifications, "open_pages", Counter())


@pytest.fixture
def priced(conversation: Conversation) -> None:
    LanguageModel.objects.update(prices={"input": 1, "output": 1})
    assert conversation.language_model
    conversation.language_model.refresh_from_db()


async def test_a_client_sees_what_its_limits_of_use_leave():
    """The rates of a token have other names."""
    client = await hosts.Client().open()
    user = await User.objects.aget()
    await limit(user, requests=5, cost=Decimal("2.5"))
    reply = lambda received: hosts.canned_reply("chat", received)  # noqa: E731
    with hosts.Host(reply) as host:
        codec = hosts.CODECS["chat"]
        model = await hosts.add_model("openai_compatible", codec, host.url, "m")
        await LanguageModel.objects.aupdate(prices={"input": 1, "output": 1})
        body = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
        left = []
        for _ in range(2):
            answered = await client.post("/v1/chat/completions", body)
            assert answered.status == 200, answered.body
            headers = {k.lower(): v for k, v in dict(answered.headers).items()}
            left.append(headers["x-ratelimit-remaining-requests-month"])
            assert headers["x-ratelimit-limit-requests-month"] == "5"
            assert headers["x-ratelimit-limit-cost-month"] == "2.5"
            assert int(headers["x-ratelimit-reset-requests-month"]) > 0
            assert "x-ratelimit-limit-requests" not in headers
        assert left == ["4", "3"]
        await client.close()


async def test_messages_over_the_websocket_are_counted_and_refused(
    conversation: Conversation, say: Any, pages: None
):
    script = say(DONE, DONE)
    await limit(conversation.owner, **ONE)
    page = await Page(conversation).open()
    page.ask(type="turn.create", input="Hi", key="first")
    heard = await page.hears()
    while heard["type"] != "parley:turn.completed" and "response" not in heard:
        assert heard["type"] != "error", heard
        heard = await page.hears()
    page.ask(type="turn.create", input="Hi", key="second")
    while heard["type"] != "error":
        heard = await page.hears()
    assert heard["key"] == "second"
    assert heard["error"]["code"] == "insufficient_quota"
    assert heard["error"]["message"].startswith("Your limit, 1 message a month")
    await page.leave()
    assert await Turn.objects.acount() == 1
    assert len(script.requests) <= 1


@pytest.mark.usefixtures("priced")
@pytest.mark.parametrize("amounts", [FEW_TOKENS, LITTLE_MONEY], ids=["tokens", "cost"])
async def test_a_message_over_the_websocket_that_costs_too_much_calls_no_model(
    conversation: Conversation, say: Any, pages: None, amounts: dict[str, Any]
):
    script = say(DONE)
    await limit(conversation.owner, **amounts)
    page = await Page(conversation).open()
    page.ask(type="turn.create", input="Hi " * 50, key="k")
    heard = await page.hears()
    while "insufficient_quota" not in str(heard):
        heard = await page.hears()
    await page.leave()
    assert not script.requests


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize(
    ("amounts", "status"), [({"requests": 0}, 429), ({"tokens": 5}, 200)]
)
async def test_a_response_in_the_background_is_refused_or_fails(
    amounts: dict[str, Any], status: int
):
    """What it would take is known to the process that runs it."""
    client = await hosts.Client().open()
    await limit(await User.objects.aget(), **amounts)
    reply = lambda received: hosts.canned_reply("responses", received)  # noqa: E731
    with hosts.Host(reply) as host:
        codec = hosts.CODECS["responses"]
        model = await hosts.add_model("openai", codec, host.url, "new-model")
        body = {"model": model, "input": "Hi", "background": True}
        answered = await client.post("/v1/responses", body)
        assert answered.status == status, answered.body
        if status == 200:
            turn = await Turn.objects.aget()
            while turn.status not in ("completed", "failed"):
                await turn.arefresh_from_db()
            assert turn.status == "failed"
            assert turn.error["code"] == "E_USAGE_LIMIT"
        else:
            assert b"insufficient_quota" in answered.body
            assert not await Turn.objects.aexists()
        await client.close()
    assert not host.received


async def test_the_tokens_of_a_summary_are_counted(
    conversation: Conversation, say: Any, running: None
):
    model = conversation.language_model
    assert model
    model.context_window = WINDOW
    await model.asave()
    say(DONE)
    for number in range(4):
        await answer(conversation, text=f"{number}: {LONG}")
    await limit(conversation.owner, tokens=1_000_000)
    last = [TextDelta(0, "Done."), UsageDelta(10, 2), FinishDelta("stop")]
    script = say(SUMMARY, last)
    await answer(conversation, text=f"4: {LONG}")
    assert len(script.requests) == 2
    [left] = await sync_to_async(find_limits_left)(conversation.owner.pk)
    assert left.used == 700 + 9 + 10 + 2


async def test_a_chat_whose_summary_is_above_the_limit_calls_no_model(
    conversation: Conversation, say: Any, running: None
):
    model = conversation.language_model
    assert model
    model.context_window = WINDOW
    await model.asave()
    say(DONE)
    for number in range(4):
        await answer(conversation, text=f"{number}: {LONG}")
    await limit(conversation.owner, tokens=100)
    script = say(SUMMARY, DONE)
    turn, _ = await answer(conversation, text=f"4: {LONG}")
    assert turn.status == "failed"
    assert turn.error["code"] == "E_USAGE_LIMIT"
    assert not script.requests
