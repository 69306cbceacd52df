"""The turn protocol, over real rows and a scripted provider: in its embedded delivery,
and with tests.settings_scaled in its other one."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from conversations import engine
from conversations.api.serializers import TurnRequestSerializer
from conversations.engine import engine as core
from conversations.engine import turn_loader, turn_store
from conversations.engine.event_log import Position, StaleEpoch
from conversations.engine.replay import replay
from conversations.models import Conversation, Item, ToolCall, Turn
from conversations.models.preset import PresetNotAvailable
from llm.errors import BadRequest, ProviderDown, ProviderTimeout, RateLimited
from llm.http import client
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from llm.wire.deltas import (
    FinishDelta,
    ProofDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import output_text, user_message
from tools.models import PermittedTools
from tools.registry import RuntimeTool

from .script import HANG, Script

ANSWER = [
    TextDelta(0, "Hello"),
    TextDelta(0, " there."),
    ProofDelta(0, {"signature": "s1g"}),
    UsageDelta(10, 2),
    FinishDelta("stop"),
]
LONG_AGO = datetime(2001, 2, 3, tzinfo=UTC)
CALL = [ToolCallDelta(0, "c1", "count", "{}"), FinishDelta("tool_calls")]


@pytest.fixture
def conversation(transactional_db):
    user = User.objects.create_user("alice")
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    model = LanguageModel.objects.create(provider=provider, name="demo")
    return Conversation.objects.create(owner=user, language_model=model)


@pytest.fixture
def say(monkeypatch):
    """Make the provider say these calls."""

    def say(*calls, **options):
        script = Script(*calls, **options)
        monkeypatch.setattr(client, "stream", script)
        return script

    return say


@pytest.fixture
def counter(monkeypatch):
    """A tool that counts how often it has run."""
    runs: list[str] = []

    def offer(replay):
        async def count(context, arguments):
            runs.append(context.idempotency_key)
            return f"{len(runs)}"

        tool = RuntimeTool(
            name="count",
            description="",
            parameters={"type": "object"},
            call=count,
            replay=replay,
        )
        monkeypatch.setattr(
            "conversations.engine.available_tools._tools",
            lambda turn: PermittedTools({"count": tool}),
        )
        return runs

    return offer


@pytest.fixture
async def running(transactional_db, settings):
    settings.DRAIN_GRACE = 0.1
    await engine.start()
    yield
    await engine.drain()


async def ask(conversation, text="Hi", **fields):
    turn = await sync_to_async(conversation.open_turn)([user_message(text)])
    if fields:
        await Turn.objects.filter(pk=turn.pk).aupdate(**fields)
    return turn


async def follow(turn, after=None):
    batches = engine.subscribe(turn.pk, after)
    return [entry async for batch in batches for entry in batch]


async def answer(conversation, **fields):
    turn = await ask(conversation, **fields)
    engine.submit(turn.pk, conversation.pk)
    entries = await follow(turn)
    await turn.arefresh_from_db()
    return turn, entries


def text_of(entries):
    """What a client shows that obeys the resets."""
    items: dict[int, str] = {}
    for entry in entries:
        event = entry.event
        if event["type"] == "parley:step.reset":
            items = {n: t for n, t in items.items() if n < event["output_index"]}
        elif event["type"] == "response.output_item.added":
            items[event["output_index"]] = ""
        elif event["type"] == "response.output_text.delta":
            items[event["output_index"]] += event["delta"]
    return "".join(items.values())


async def test_a_turn_is_answered_and_on_record(conversation, say, running):
    say(ANSWER)
    turn, entries = await answer(conversation)
    assert text_of(entries) == "Hello there."
    assert (turn.status, turn.epoch) == (Turn.Status.COMPLETED, 1)
    assert turn.usage["total_tokens"] == 12
    item = await Item.objects.aget(turn=turn, origin=Item.Origin.OUTPUT)
    assert output_text([item.payload]) == "Hello there."
    assert item.provider_data["raw"] == {"signature": "s1g"}
    call = await ModelCall.objects.aget()
    assert (call.turn_id, call.status, call.output_tokens) == (turn.pk, "completed", 2)
    assert not any(b"s1g" in entry.data for entry in entries)


async def test_the_next_turn_knows_the_last_with_its_proof(conversation, say, running):
    script = say(ANSWER)
    await answer(conversation)
    await answer(conversation, text="And now?")
    sent = script.requests[1]
    assert [item.get("role") for item in sent.items] == ["user", "assistant", "user"]
    assert sent.proof(sent.items[1]) == {"signature": "s1g"}


async def test_a_follower_is_told_the_same_from_any_place(conversation, say, running):
    say(ANSWER)
    turn, entries = await answer(conversation)
    for number, entry in enumerate(entries):
        assert await follow(turn, entry.position) == entries[number + 1 :]
    assert await engine.is_at_end(turn.pk, entries[-1].position)
    assert not await engine.is_at_end(turn.pk, entries[-2].position)


async def test_who_was_told_from_rows_goes_on_by_them_while_the_log_stays(
    conversation, say, running
):
    say(ANSWER)
    turn, _ = await answer(conversation)
    over = await sync_to_async(replay)(turn.pk)
    for number, entry in enumerate(over.entries):
        rest = over.entries[number + 1 :]
        assert await follow(turn, entry.position) == rest
        assert await engine.is_at_end(turn.pk, entry.position) == (not rest)


async def test_replayed_from_rows_the_items_are_the_same(conversation, say, running):
    say([*CALL], ANSWER)
    turn, live = await answer(conversation)
    over = await sync_to_async(replay)(turn.pk)
    assert text_of(over.entries) == text_of(live)
    last, again = live[-1].event["response"], over.entries[-1].event["response"]
    assert again["output"] == last["output"]
    assert (again["status"], again["usage"]) == (last["status"], last["usage"])
    await Turn.objects.filter(pk=turn.pk).aupdate(finished_at=LONG_AGO)
    later = await sync_to_async(replay)(turn.pk)
    ended = later.entries[-1].event["response"]
    assert ended["completed_at"] == LONG_AGO.timestamp()
    numbers = [entry.log_position for entry in over.entries]
    assert numbers == [Position(turn.epoch + 1, n) for n in range(len(numbers))]
    assert over.after(live[-1].log_position) == []
    for entry in live[2:-1]:
        seen = [e for e in live if e.log_position <= entry.log_position]
        assert text_of([*seen, *over.after(entry.log_position)]) == text_of(live)


@pytest.mark.parametrize(
    "error",
    [
        BadRequest(),
        BadRequest("No such thing.", param="input"),
        RateLimited(),
        RateLimited(retry_after=18.2),
        PresetNotAvailable(),
        ProviderTimeout(),
    ],
)
async def test_replayed_from_rows_an_error_is_what_it_was(
    conversation, say, running, error
):
    say([error])
    turn, live = await answer(conversation)
    over = await sync_to_async(replay)(turn.pk)
    told = [[e.event for e in each][-2:] for each in (live, over.entries)]
    assert told[0][0]["error"] == told[1][0]["error"]
    assert told[0][1]["response"]["error"] == told[1][1]["response"]["error"]


@pytest.mark.skipif(bool(settings.REDIS_URL), reason="a worker may take it up")
async def test_who_submits_a_turn_follows_its_run_and_does_not_read_the_rows(
    conversation, say, running, monkeypatch
):
    def read(turn_id):
        raise AssertionError("the run is ours")

    say(ANSWER)
    monkeypatch.setattr(core, "replay", read)
    _, entries = await answer(conversation)
    assert text_of(entries) == "Hello there."


async def test_messages_sent_meanwhile_are_answered_in_their_order(
    conversation, say, running
):
    gate = asyncio.Event()
    script = say([gate, *ANSWER], ANSWER)
    turns = [await ask(conversation, str(number)) for number in range(3)]
    for turn in turns:
        engine.submit(turn.pk)
    first = asyncio.ensure_future(follow(turns[0]))
    while not script.requests:
        await asyncio.sleep(0)
    second = await Turn.objects.aget(pk=turns[1].pk)
    assert second.status == Turn.Status.QUEUED
    gate.set()
    await asyncio.gather(first, *map(follow, turns[1:]))
    asked = [
        [i["content"][0]["text"] for i in r.items if i.get("role") == "user"]
        for r in script.requests
    ]
    assert asked == [["0"], ["0", "1"], ["0", "1", "2"]]


async def test_stop_ends_a_running_turn_and_keeps_its_text(conversation, say, running):
    script = say([TextDelta(0, "Well"), HANG])
    turn = await ask(conversation)
    engine.submit(turn.pk)
    entries = []
    async for batch in engine.subscribe(turn.pk):
        entries += batch
        if entries[-1].type == "response.output_text.delta":
            await sync_to_async(engine.cancel)(turn)
    assert entries[-1].type == "response.incomplete"
    await turn.arefresh_from_db()
    assert (turn.status, turn.incomplete_reason) == ("cancelled", "cancelled")
    assert text_of(entries) == "Well"
    assert script.closed == 1
    assert (await ModelCall.objects.aget()).status == "cancelled"


async def test_stop_ends_a_queued_turn_without_waiting_for_the_first(
    conversation, say, running
):
    say([HANG])
    first, second = await ask(conversation), await ask(conversation)
    engine.submit(first.pk)
    engine.submit(second.pk)
    await sync_to_async(engine.cancel)(second)
    entries = await follow(second)
    assert entries[-1].event["response"]["incomplete_details"] == {
        "reason": "cancelled"
    }
    await first.arefresh_from_db()
    assert not first.is_finished
    await sync_to_async(engine.cancel)(first)
    await follow(first)


async def test_stop_ends_a_turn_whose_rows_have_just_been_read_to_run_it(
    conversation, say, running, monkeypatch
):
    script, read, loop = say([HANG]), turn_loader.load, asyncio.get_running_loop()

    def read_and_stopped(claim, opened=None):
        work = read(claim, opened)
        engine.cancel(Turn(pk=claim.turn_id))
        heard = threading.Event()
        loop.call_soon_threadsafe(heard.set)  # behind the engine's own
        assert heard.wait(5)
        return work

    monkeypatch.setattr(turn_loader, "load", read_and_stopped)
    turn, entries = await answer(conversation)
    assert turn.status == Turn.Status.CANCELLED
    assert entries[-1].type == "response.incomplete"
    assert script.requests == []


def _opened_over_a_page(conversation):
    """As the WebSocket opens it."""
    found = Conversation.objects.find(conversation.owner, conversation.pk)
    serializer = TurnRequestSerializer(
        data={"input": "Hi", "options": {"seed": 7, "temperature": 0.5}},
        context={"conversation": found, "user": found.owner},
    )
    serializer.is_valid(raise_exception=True)
    return serializer.save()


def _shown(work):
    task, made = work.task, work.prepare(())
    return [
        *(made, work.echo, work.created_at, work.user_id, work.conversation_id),
        *(work.inputs, work.committed, work.usage, work.cancel_requested),
        *(work.route.model_id, work.route.key_id, work.route.capabilities),
        *(task.context, task.max_steps, task.parallel, list(task.tools)),
    ]


def test_a_turn_opened_just_now_is_as_it_would_be_read(
    conversation, django_assert_max_num_queries
):
    conversation.options = {"seed": 5, "max_output_tokens": 99}
    conversation.instructions = "Be brief."
    conversation.save()
    turn = _opened_over_a_page(conversation)
    claim = turn_store.claim(turn.pk)
    read = _shown(turn_loader.load(claim))
    with django_assert_max_num_queries(5):
        assert _shown(turn_loader.load(claim, turn)) == read


def test_a_turn_that_was_run_before_is_read(conversation):
    turn = _opened_over_a_page(conversation)
    first = turn_store.claim(turn.pk)
    turn_store.release(first, [{"type": "message", "id": "m", "content": []}], [])
    work = turn_loader.load(turn_store.claim(turn.pk), turn)
    assert list(work.task.partial) == [{"type": "message", "id": "m", "content": []}]


@pytest.mark.skipif(bool(settings.REDIS_URL), reason="embedded alone keeps them")
async def test_a_turn_that_waited_for_room_is_read_when_it_has_some(
    conversation, say, running, monkeypatch, settings
):
    seen, read = [], turn_loader.load

    def noted(claim, opened=None):
        seen.append(opened)
        return read(claim, opened)

    monkeypatch.setattr(turn_loader, "load", noted)
    say(ANSWER, ANSWER)
    for is_full in (False, True):
        turn = await sync_to_async(_opened_over_a_page)(conversation)
        room = asyncio.Semaphore(int(not is_full))
        monkeypatch.setattr(engine._engine, "_slots", room)
        engine.submit(turn.pk, turn.conversation_id, turn)
        if is_full:
            await asyncio.sleep(0)  # it begins to wait
            room.release()
        await follow(turn)
    assert [opened is not None for opened in seen] == [True, False]


async def test_a_provider_that_fails_ends_the_turn_with_its_reason(
    conversation, say, running
):
    say([TextDelta(0, "Well"), ProviderDown(detail="quotes the prompt")])
    turn, entries = await answer(conversation)
    assert turn.status == Turn.Status.FAILED
    assert turn.error["code"] == "E_LLM_PROVIDER_DOWN"
    assert not any(b"quotes" in entry.data for entry in entries)
    assert (await ModelCall.objects.aget()).error_detail == "quotes the prompt"


async def test_a_turn_without_a_model_fails_with_a_sentence(conversation, running):
    await LanguageModel.objects.aupdate(enabled=False)
    turn, entries = await answer(conversation)
    assert turn.status == Turn.Status.FAILED
    assert turn.error["code"] == "E_MODEL_NOT_AVAILABLE"
    assert entries[0].type == "response.created"


async def test_a_fault_of_ours_ends_the_turn_too(
    conversation, say, running, monkeypatch, caplog
):
    def broken(*arguments):
        raise RuntimeError("secret")

    monkeypatch.setattr("conversations.engine.turn_loader.load", broken)
    turn, entries = await answer(conversation)
    assert turn.error["code"] == "E_INTERNAL"
    assert not any(b"secret" in entry.data for entry in entries)


async def test_an_option_the_model_does_not_take_is_refused_before_it_costs(
    conversation, say, running
):
    script = say(ANSWER)
    await LanguageModel.objects.aupdate(capabilities={"sampling": "never"})
    turn, _ = await answer(conversation, options={"temperature": 0.5})
    assert turn.error["code"] == "E_LLM_BAD_REQUEST"
    assert "temperature" in turn.error["message"]
    assert script.requests == []
    assert not await ModelCall.objects.aexists()


async def test_an_option_may_be_left_out_and_that_is_told(conversation, say, running):
    say(ANSWER)
    await LanguageModel.objects.aupdate(capabilities={"sampling": "never"})
    turn, entries = await answer(
        conversation, options={"temperature": 0.5, "ignore_invalid_options": True}
    )
    assert turn.status == Turn.Status.COMPLETED
    told = [e.event for e in entries if e.type == "parley:step.degraded"]
    assert told[0]["options"] == ["temperature"]
    assert (await ModelCall.objects.aget()).degraded == ["temperature"]


async def test_a_model_that_fails_is_stood_in_for_by_its_fallback(
    conversation, say, running
):
    script = say([ProviderDown()], ANSWER)
    model = await LanguageModel.objects.aget()
    other = await LanguageModel.objects.acreate(
        provider_id=model.provider_id, name="demo-fast"
    )
    await model.fallbacks.aadd(other)
    model.options = {"retry": {"attempts": 1}}
    await model.asave()
    _, entries = await answer(conversation)
    assert text_of(entries) == "Hello there."
    assert [request.model for request in script.requests] == ["demo", "demo-fast"]
    calls = [c async for c in ModelCall.objects.order_by("pk")]
    assert [call.status for call in calls] == ["failed", "completed"]
    assert [call.model_id for call in calls] == [model.pk, other.pk]
    item = await Item.objects.aget(origin="output")
    assert item.provider_data["issuer"]["model"] == "demo-fast"


# What a crash leaves behind


async def interrupted(conversation, text, **fields):
    """A turn whose process is gone, with what the last heartbeat kept of it."""
    partial = [
        {
            "type": "message",
            "id": "msg_1",
            "status": "in_progress",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            ],
        }
    ]
    return await ask(
        conversation,
        **{
            "status": Turn.Status.RUNNING,
            "epoch": 1,
            "lease_until": timezone.now() + _left_of_the_lease(),
            "partial": partial if text else None,
            **fields,
        },
    )


def _left_of_the_lease():
    """The only process frees all leases as it starts; one of many waits for them."""
    return timedelta(seconds=-1) if settings.REDIS_URL else timedelta(minutes=1)


async def test_an_interrupted_answer_goes_on_where_it_was(conversation, say, settings):
    say(ANSWER)
    turn = await interrupted(conversation, "Hello th")
    await engine.start()
    try:
        entries = await follow(turn, "1-9")
    finally:
        await engine.drain()
    assert entries[0].event == {
        "type": "parley:step.reset",
        "sequence_number": 10,
        "output_index": 0,
    }
    told = [e.event["delta"] for e in entries if e.type.endswith("text.delta")]
    assert "".join(told) == "Hello there."  # in one piece where the rows tell it
    await turn.arefresh_from_db()
    assert (turn.status, turn.epoch) == (Turn.Status.COMPLETED, 2)


async def test_another_answer_does_not_wipe_out_the_first(conversation, say, running):
    say(ANSWER)
    turn = await interrupted(conversation, "Good day", lease_until=timezone.now())
    await sync_to_async(turn_store.release_all)()
    engine.submit(turn.pk)
    entries = await follow(turn)
    assert text_of(entries) == "Good dayHello there."


@pytest.mark.parametrize(
    ("replay", "runs", "state"),
    [("safe", 1, "completed"), ("idempotent", 1, "completed"), ("once", 0, "unknown")],
)
async def test_an_interrupted_call_runs_again_only_if_it_may(
    conversation, say, counter, replay, runs, state, settings
):
    script = say(ANSWER)
    counted = counter(replay)
    turn = await interrupted(conversation, "")
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "count",
        "arguments": "{}",
        "status": "completed",
    }
    await Item.objects.acreate(
        turn=turn, position=1, origin="output", type="function_call", payload=call
    )
    await ToolCall.objects.acreate(
        turn=turn, call_id="c1", name="count", state="executing", attempts=1
    )
    await engine.start()
    try:
        await follow(turn)
    finally:
        await engine.drain()
    assert counted == [f"{turn.pk}:c1"] * runs
    row = await ToolCall.objects.aget()
    assert row.state == state
    sent = script.requests[0].items
    assert sent[-1]["type"] == "function_call_output"
    assert ("may or may not" in sent[-1]["output"]) is (runs == 0)


async def test_a_turn_interrupted_too_often_is_given_up(conversation, say, running):
    say(ANSWER)
    turn = await interrupted(
        conversation,
        "",
        epoch=9,
        claims=9,
        lease_until=timezone.now() - timedelta(seconds=1),
    )
    engine.submit(turn.pk)
    await follow(turn)
    await turn.arefresh_from_db()
    assert turn.error["code"] == "E_TURN_INTERRUPTED"


async def test_a_turn_that_takes_too_long_ends_with_what_was_said(
    conversation, say, running, monkeypatch
):
    monkeypatch.setattr(settings, "TURN_DEADLINE", 0.01)
    say([TextDelta(0, "Well"), HANG])
    _, entries = await answer(conversation)
    response = entries[-1].event["response"]
    assert response["incomplete_details"] == {"reason": "deadline"}
    assert response["output"][0]["content"][0]["text"] == "Well"


async def test_what_was_said_is_kept_once_a_second(conversation, say, running):
    say([TextDelta(0, "Well"), HANG])
    turn = await ask(conversation)
    engine.submit(turn.pk)
    async for batch in engine.subscribe(turn.pk):
        if batch[-1].type == "response.output_text.delta":
            break
    await engine._engine._beat()
    await turn.arefresh_from_db()
    assert output_text(turn.partial) == "Well"
    await sync_to_async(engine.cancel)(turn)
    await follow(turn)


async def test_a_zombie_changes_nothing(conversation, say, running):
    gate = asyncio.Event()
    say([TextDelta(0, "Well"), gate, *ANSWER])
    turn = await ask(conversation)
    engine.submit(turn.pk)
    async for batch in engine.subscribe(turn.pk):
        if batch[-1].type == "response.output_text.delta":
            break
    await Turn.objects.filter(pk=turn.pk).aupdate(epoch=7)  # somebody else has it
    run = engine._engine.runs[turn.pk]
    gate.set()
    while engine._engine.runs:
        await asyncio.sleep(0)
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.RUNNING
    assert not await Item.objects.filter(turn=turn, origin="output").aexists()
    with pytest.raises(StaleEpoch):
        await sync_to_async(turn_store.advance)(run.claim, turn_store.TurnProgress())


async def test_a_server_that_goes_down_hands_its_turns_over(
    conversation, say, settings
):
    settings.DRAIN_GRACE = 0.05
    say([TextDelta(0, "Hello"), HANG])
    await engine.start()
    turn = await ask(conversation)
    engine.submit(turn.pk)
    entries = []
    async for batch in engine.subscribe(turn.pk):
        entries += batch
        if batch[-1].type == "response.output_text.delta":
            break
    await engine.drain()
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.RUNNING
    assert turn.lease_until < timezone.now()
    assert output_text(turn.partial) == "Hello"
    say(ANSWER)
    await engine.start()
    try:
        entries += await follow(turn, entries[-1].position)
    finally:
        await engine.drain()
    assert text_of(entries) == "Hello there."


async def test_a_claim_is_for_one(conversation, transactional_db):
    turn = await ask(conversation)
    claims = [await sync_to_async(turn_store.claim)(turn.pk) for _ in range(3)]
    assert [claim is not None for claim in claims] == [True, False, False]


async def test_the_cost_of_a_turn_does_not_grow_with_the_conversation(
    conversation, django_assert_num_queries
):
    def queries(turns):
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        for _ in range(turns):
            turn = conversation.open_turn([user_message("hi")])
            turn.status = Turn.Status.COMPLETED
            turn.save()
        turn = conversation.open_turn([user_message("hi")])
        claim = turn_store.claim(turn.pk)
        with CaptureQueriesContext(
            connection,
        ) as captured:
            turn_loader.load(claim)
        turn.status = Turn.Status.COMPLETED
        turn.save()
        return len(captured)

    assert await sync_to_async(queries)(1) == await sync_to_async(queries)(30)


async def test_a_corrected_item_is_told_as_corrected(conversation, say, running):
    say(ANSWER)
    turn, _ = await answer(conversation)
    item = await Item.objects.select_related("turn").aget(origin="output")
    payload = {**item.payload, "content": [{**item.payload["content"][0], "text": "—"}]}
    await sync_to_async(item.correct)(payload)
    engine.forget(turn.pk)
    await asyncio.sleep(0)
    assert text_of(await follow(turn)) == "—"
