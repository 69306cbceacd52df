"""Responses that a provider continues in the background are resumed after a run was
interrupted, ended with the turn, and requested again if the provider refuses."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from decimal import Decimal

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.utils import timezone

from conversations import engine
from conversations.access import budget
from conversations.engine import claim_store
from conversations.models import AccessToken, Conversation, Item, Turn
from conversations.models.ledger import Balance, LedgerEntry
from llm.http import client
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from llm.wire.items import text_of, user_message
from llm.wire.response_builder import TERMINAL
from tests.conversations import background_host
from tests.conversations.background_host import INPUT_TOKENS, OUTPUT_TOKENS, Host
from tools.models import PermittedTools
from tools.registry import RuntimeTool

NEVER = 10_000
POINTS = {
    "before the first delta": 2,
    "in the thought": 4,
    "after the thought": 8,
    "in the text": 10,
    "before the end": 13,
}


@pytest.fixture
def host():
    with Host() as host:
        yield host


@pytest.fixture
def model(transactional_db, host):
    provider = Provider.objects.create(
        name="Keeper", kind="openai", base_url=host.url, allow_private_network=True
    )
    ApiKey.objects.create(provider=provider, secret=background_host.KEY)
    return LanguageModel.objects.create(
        provider=provider,
        name="gpt-6-keeper",
        capabilities={"background_resume": True},
    )


@pytest.fixture
def conversation(model):
    user = User.objects.create_user("ada")
    return Conversation.objects.create(owner=user, language_model=model)


@pytest.fixture
def priced(conversation, model):
    """The conversation, with a model of known price, and a token with a budget."""
    price = {"input": 1, "output": 1}  # USD for a million tokens
    LanguageModel.objects.filter(pk=model.pk).update(prices=price)
    token, _ = AccessToken.issue(conversation.owner, "test", budget=Decimal(9))
    return conversation, token


@pytest.fixture(autouse=True)
async def stopping(settings, transactional_db, host, monkeypatch):
    monkeypatch.setattr("conversations.engine.engine.BEAT", 0.05)
    settings.DRAIN_GRACE = 0.0
    yield
    host.go_on.set()
    await engine.drain()
    await client.aclose()


async def until_second_response():
    """Until the row names the response that replaced the first."""
    async with asyncio.timeout(30):
        second = Turn.objects.filter(provider_response__id="resp_2")
        while not await second.aexists():
            await asyncio.sleep(0)


async def start_turn(conversation, **fields):
    question = [user_message("Count")]
    opened = await sync_to_async(conversation.open_turn)(question, **fields)
    return opened.turn


def reserve_again():
    """Undo the settlement of the only ledger entry."""
    entry = LedgerEntry.objects.get()
    LedgerEntry.objects.update(state="reserved", cost=None)
    Balance.objects.update(spent=0, reserved=entry.amount)


async def begun(turn, host, pause_at):
    """Running, and as far as `pause_at`, with a snapshot that knows the response."""
    host.pause_at = pause_at
    await engine.start()
    engine.submit(turn.pk, turn.conversation_id)
    async with asyncio.timeout(30):
        await asyncio.to_thread(host.paused.acquire, timeout=30)
        while not await Turn.objects.exclude(provider_response=None).aexists():
            await asyncio.sleep(0)


async def interrupted(turn, host, pause_at, how):
    await begun(turn, host, pause_at)
    stored = await Turn.objects.values("partial", "provider_response").aget(pk=turn.pk)
    await engine.drain()
    if how == "crashed":  # then only the snapshot of a heartbeat exists
        await Turn.objects.filter(pk=turn.pk).aupdate(**stored)


async def ended(turn, host):
    host.pause_at = NEVER
    host.go_on.set()
    await engine.start()
    engine.submit(turn.pk, turn.conversation_id)
    return await finished_turn(turn)


async def finished_turn(turn):
    """What is on record once it is over."""
    async with asyncio.timeout(30):
        async for batch in engine.subscribe(turn.pk):
            if batch[-1].type in TERMINAL:
                break
    await engine.drain()
    await turn.arefresh_from_db()
    rows = Item.objects.filter(turn=turn, origin="output")
    return [row.payload async for row in rows]


def summary_of(item):
    return "".join(part["text"] for part in item["summary"])


def check_whole(output, number=1):
    """The answer of the request with this number, and nothing beside it."""
    thought, text = output
    assert summary_of(thought) == background_host.thought_of(number)
    assert text_of(text) == background_host.text_of(number)
    assert not any(item.get("parley:interrupted") for item in output)


@pytest.mark.parametrize("how", ["released", "crashed"])
@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)
async def test_an_interrupted_answer_is_resumed_and_not_requested_again(
    conversation, host, point, how
):
    turn = await start_turn(conversation)
    await interrupted(turn, host, point, how)
    check_whole(await ended(turn, host))
    assert turn.status == Turn.Status.COMPLETED
    assert turn.provider_response is None
    [body] = host.requests
    assert (body["background"], body["store"], body["stream"]) == (True, True, True)
    [(response_id, query)] = host.resumed
    assert response_id == "resp_1"
    assert query["stream"] == ["true"]
    assert query["include[]"] == ["reasoning.encrypted_content"]
    assert host.cancelled == []


@pytest.mark.parametrize("how", ["released", "crashed"])
@pytest.mark.parametrize("again", [0, 2, 4, 10])
async def test_it_is_resumed_after_a_second_interruption(
    conversation, host, again, how
):
    turn = await start_turn(conversation)
    await interrupted(turn, host, 4, how)
    await interrupted(turn, host, again, how)
    check_whole(await ended(turn, host))
    assert len(host.requests) == 1
    assert [response_id for response_id, _ in host.resumed] == ["resp_1"] * 2


async def test_each_request_is_a_row_and_tokens_count_once(conversation, host):
    turn = await start_turn(conversation)
    await interrupted(turn, host, 10, "released")
    await ended(turn, host)
    calls = [call async for call in ModelCall.objects.order_by("pk")]
    assert [call.status for call in calls] == ["cancelled", "completed"]
    assert [call.response_id for call in calls] == ["resp_1"] * 2
    assert [call.input_tokens for call in calls] == [None, INPUT_TOKENS]
    assert [call.output_tokens for call in calls] == [None, OUTPUT_TOKENS]
    assert turn.usage["input_tokens"] == INPUT_TOKENS


@pytest.mark.parametrize("state", ["settled", "reserved", "charged"])
@pytest.mark.parametrize("interruptions", [1, 2])
async def test_a_budget_is_charged_once_for_it(priced, host, interruptions, state):
    """Whatever became of the reservation of the run that was interrupted."""
    conversation, token = priced
    turn = await start_turn(conversation, access_token=token)
    for _ in range(interruptions):
        await interrupted(turn, host, 10, "crashed")
    if state != "settled":  # as a process leaves it that was killed
        await sync_to_async(reserve_again)()
    if state == "charged":
        await LedgerEntry.objects.aupdate(deadline=timezone.now())
        assert await sync_to_async(budget.charge_expired)() == 1
    check_whole(await ended(turn, host))
    cost = 10**9 // 10**6 * (INPUT_TOKENS + OUTPUT_TOKENS)
    assert await sync_to_async(budget.balance_of)(token) == (cost, 0)
    entry = await LedgerEntry.objects.aget()
    assert (entry.state, entry.cost) == ("settled", cost)


async def test_a_response_that_is_lost_is_charged_at_its_maximum(priced, host):
    """The provider may bill it beside the one that replaces it."""
    conversation, token = priced
    turn = await start_turn(conversation, access_token=token)
    await interrupted(turn, host, 2, "crashed")
    await sync_to_async(reserve_again)()
    host.refusal = 404
    await ended(turn, host)
    cost = 10**9 // 10**6 * (INPUT_TOKENS + OUTPUT_TOKENS)
    [lost] = [row async for row in LedgerEntry.objects.filter(state="reserved")]
    assert await sync_to_async(budget.balance_of)(token) == (cost, lost.amount)


@pytest.mark.parametrize("refusal", [404, 400, 403])
@pytest.mark.parametrize("point", [2, 10])
async def test_a_missing_response_is_requested_again(
    conversation, host, point, refusal
):
    turn = await start_turn(conversation)
    await interrupted(turn, host, point, "released")
    host.refusal = refusal
    output = await ended(turn, host)
    assert turn.status == Turn.Status.COMPLETED
    check_whole([item for item in output if not item.get("parley:interrupted")], 2)
    assert len(host.requests) == 2
    texts = [text_of(i) for i in output if i["type"] == "message"]
    assert texts == [*["Take 1: "] * (point == 10), background_host.text_of(2)]


@pytest.mark.slow
@pytest.mark.smoke
async def test_a_response_that_has_expired_gives_way_to_the_next(conversation, host):
    """The replacement is resumed, not the first response."""
    turn = await start_turn(conversation)
    await interrupted(turn, host, 10, "crashed")
    del host.responses["resp_1"]
    await begun(turn, host, 10)
    await until_second_response()
    await engine.drain()
    output = await ended(turn, host)
    check_whole([item for item in output if not item.get("parley:interrupted")], 2)
    assert [response_id for response_id, _ in host.resumed] == ["resp_1", "resp_2"]
    assert len(host.requests) == 2


async def test_a_turn_that_is_stopped_ends_the_response(conversation, host):
    turn = await start_turn(conversation)
    await begun(turn, host, 10)
    await sync_to_async(engine.cancel)(turn)
    async with asyncio.timeout(30):
        while not host.cancelled:
            await asyncio.sleep(0)
    output = await finished_turn(turn)
    assert turn.status == Turn.Status.CANCELLED
    assert (host.cancelled, len(host.requests)) == (["resp_1"], 1)
    assert text_of(output[-1]) == "Take 1: "


@pytest.mark.parametrize("reason", ["a person", "the deadline"])
async def test_a_turn_that_ends_while_unclaimed_cancels_the_response(
    conversation, host, reason
):
    turn = await start_turn(conversation)
    await interrupted(turn, host, 4, "crashed")
    if reason == "a person":
        await sync_to_async(claim_store.request_cancel)(turn.pk)
    else:
        past = timezone.now() - timedelta(seconds=1)
        await Turn.objects.aupdate(deadline_at=past, seconds_left=None)
    await ended(turn, host)
    assert turn.is_finished
    assert turn.status != Turn.Status.COMPLETED
    assert (host.cancelled, host.resumed) == (["resp_1"], [])


@pytest.mark.slow
@pytest.mark.smoke
async def test_the_answer_to_a_tool_is_not_mixed_up_with_the_call(
    conversation, host, monkeypatch
):
    """Each response answers the items of its request."""

    async def look(context, arguments):
        return "seen"

    tool = RuntimeTool(
        name="look", description="", parameters={"type": "object"}, call=look
    )
    monkeypatch.setattr(
        "conversations.engine.loading.available_tools.permitted_tools",
        lambda turn: PermittedTools({"look": tool}),
    )
    host.calls = ["look"]
    turn = await start_turn(conversation)
    await interrupted(turn, host, 4, "crashed")
    host.go_on.clear()
    await begun(turn, host, 11)  # the call, resumed, has no more events
    await until_second_response()
    await engine.drain()
    output = await ended(turn, host)
    kinds = [item["type"] for item in output]
    assert kinds == [
        "reasoning",
        "function_call",
        "function_call_output",
        "reasoning",
        "message",
    ]
    check_whole(output[3:], 2)
    assert [response_id for response_id, _ in host.resumed] == ["resp_1", "resp_2"]
    assert len(host.requests) == 2


async def test_a_stale_response_is_not_resumed(conversation, host):
    """A row that an old heartbeat wrote names what answered other items."""
    turn = await start_turn(conversation)
    await interrupted(turn, host, 4, "crashed")
    row = await Turn.objects.aget(pk=turn.pk)
    stale = {**row.provider_response, "after": 3}
    await Turn.objects.aupdate(provider_response=stale)
    await ended(turn, host)
    assert (len(host.requests), host.resumed) == (2, [])


async def test_a_model_without_background_mode_stores_nothing_at_its_provider(
    conversation, host, model
):
    model.capabilities = {}
    await model.asave()
    turn = await start_turn(conversation)
    check_whole(await ended(turn, host))
    [body] = host.requests
    assert body["store"] is False
    assert "background" not in body
    assert host.responses == {}
