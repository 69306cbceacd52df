"""The turn protocol, over real rows and a scripted provider: in its embedded delivery,
and with tests.settings_scaled in its other one."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from conversations import engine
from conversations.access.limits import applicable
from conversations.engine import claim_store, subscriptions, turn_store
from conversations.engine.event_log import Position, StaleEpoch
from conversations.engine.finished_turn_events import replay
from conversations.engine.loading import turn_loader
from conversations.engine.progress_store import TurnProgress
from conversations.models import Conversation, Item, ToolCall, Turn
from conversations.models.preset import PresetNotAvailable
from conversations.requests.turn_request import TurnRequestSerializer
from llm import router
from llm.errors import BadRequest, ProviderDown, ProviderTimeout, RateLimited
from llm.models import LanguageModel, ModelCall
from llm.wire.deltas import (
    FinishDelta,
    ProofDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import output_text, proof_for, user_message
from tests.conversations.script import HANG

ANSWER = [
    TextDelta(0, "Hello"),
    TextDelta(0, " there."),
    ProofDelta(0, {"signature": "s1g"}),
    UsageDelta(10, 2),
    FinishDelta("stop"),
]
LONG_AGO = datetime(2001, 2, 3, tzinfo=UTC)
CALL = [ToolCallDelta(0, "c1", "count", "{}"), FinishDelta("tool_calls")]


@transaction.atomic
def opened(conversation, text, fields):
    """In one transaction: a worker runs the turn as soon as its row is there."""
    turn = conversation.open_turn([user_message(text)]).turn
    if fields:
        Turn.objects.filter(pk=turn.pk).update(**fields)
    return turn


async def submit_turn(conversation, text="Hi", **fields):
    return await sync_to_async(opened)(conversation, text, fields)


async def follow(turn, after=None):
    batches = engine.subscribe(turn.pk, after)
    return [entry async for batch in batches for entry in batch]


async def answer(conversation, **fields):
    turn = await submit_turn(conversation, **fields)
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
    assert proof_for(sent.issuer, sent.items[1]) == {"signature": "s1g"}


async def test_a_subscriber_receives_the_same_events_from_any_position(
    conversation, say, running
):
    say(ANSWER)
    turn, entries = await answer(conversation)
    for number, entry in enumerate(entries):
        assert await follow(turn, entry.position) == entries[number + 1 :]
    assert await engine.is_at_end(turn.pk, entries[-1].position)
    assert not await engine.is_at_end(turn.pk, entries[-2].position)


async def test_a_subscriber_on_rows_continues_while_the_log_remains(
    conversation, say, running
):
    say(ANSWER)
    turn, _ = await answer(conversation)
    over = await sync_to_async(replay)(turn.pk)
    for number, entry in enumerate(over.entries):
        rest = over.entries[number + 1 :]
        assert await follow(turn, entry.position) == rest
        assert await engine.is_at_end(turn.pk, entry.position) == (not rest)


async def test_replayed_from_rows_it_was_completed_at_the_same_second(
    conversation, say, running, monkeypatch
):
    """However long the write of the end took."""
    early = SimpleNamespace(time=lambda: time.time() - 7, monotonic=time.monotonic)
    monkeypatch.setattr("llm.wire.response_builder.time", early)
    say(ANSWER)
    turn, live = await answer(conversation)
    over = await sync_to_async(replay)(turn.pk)
    ended, again = live[-1].event["response"], over.entries[-1].event["response"]
    assert again["completed_at"] == ended["completed_at"]


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
    last_events = [[e.event for e in each][-2:] for each in (live, over.entries)]
    assert last_events[0][0]["error"] == last_events[1][0]["error"]
    assert (
        last_events[0][1]["response"]["error"] == last_events[1][1]["response"]["error"]
    )


@pytest.mark.skipif(settings.IS_SCALED, reason="a worker may take it up")
async def test_the_submitting_process_subscribes_without_reading_rows(
    conversation, say, running, monkeypatch
):
    def read(turn_id):
        raise AssertionError("the run is ours")

    say(ANSWER)
    monkeypatch.setattr(subscriptions, "replay_or_status", read)
    _, entries = await answer(conversation)
    assert text_of(entries) == "Hello there."


async def test_messages_sent_meanwhile_are_answered_in_their_order(
    conversation, say, running
):
    gate = asyncio.Event()
    script = say([gate, *ANSWER], ANSWER)
    turns = [await submit_turn(conversation, str(number)) for number in range(3)]
    for turn in turns:
        engine.submit(turn.pk)
    first = asyncio.ensure_future(follow(turns[0]))
    while not script.requests:
        await asyncio.sleep(0)
    second = await Turn.objects.aget(pk=turns[1].pk)
    assert second.status == Turn.Status.QUEUED
    gate.set()
    await asyncio.gather(first, *map(follow, turns[1:]))
    requests = [
        [i["content"][0]["text"] for i in r.items if i.get("role") == "user"]
        for r in script.requests
    ]
    assert requests == [["0"], ["0", "1"], ["0", "1", "2"]]


async def test_stop_ends_a_running_turn_and_keeps_its_text(conversation, say, running):
    script = say([TextDelta(0, "Well"), HANG])
    turn = await submit_turn(conversation)
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
    first, second = await submit_turn(conversation), await submit_turn(conversation)
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


async def test_an_engine_that_cannot_start_leaves_no_task(
    transactional_db, monkeypatch
):
    def fail(limit: int) -> None:
        raise ValueError("bug")

    before = asyncio.all_tasks()
    with monkeypatch.context() as patch:
        patch.setattr(claim_store, "to_sweep", fail)
        with pytest.raises(ValueError, match="bug"):
            await engine.start()
    assert asyncio.all_tasks() == before
    await engine.start()  # another
    await engine.drain()


async def test_stop_ends_a_turn_that_waits_for_room(
    conversation, say, settings, running
):
    script, room = say([HANG]), engine.require_engine().dispatcher.slots
    for _ in range(settings.TURN_CONCURRENCY):  # also those of turns that just ended
        await room.acquire()
    turn = await submit_turn(conversation)
    engine.submit(turn.pk)
    await asyncio.sleep(0)  # it begins to wait
    await sync_to_async(engine.cancel)(turn)
    entries = await follow(turn)
    assert entries[-1].type == "response.incomplete"
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.CANCELLED
    assert script.requests == []
    assert room.locked()  # it took no slot and released none


async def test_stop_ends_a_turn_whose_rows_have_just_been_read_to_run_it(
    conversation, say, running, monkeypatch
):
    script, read, loop = say([HANG]), turn_loader.load, asyncio.get_running_loop()

    def read_and_stopped(claim, opened, turn):
        work = read(claim, opened, turn)
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
    conversation, django_assert_max_num_queries, monkeypatch
):
    monkeypatch.setattr(applicable, "SECONDS", 3600)  # on a slow machine, too
    conversation.options = {"seed": 5, "max_output_tokens": 99}
    conversation.instructions = "Be brief."
    conversation.save()
    opened = _opened_over_a_page(conversation)
    claim = claim_store.claim(opened.turn.pk)
    read = _shown(turn_loader.load(claim))
    turn_loader.load(claim, opened)  # compiles its queries, once in a process
    with django_assert_max_num_queries(5):
        assert _shown(turn_loader.load(claim, opened)) == read


def test_the_first_turn_of_a_new_conversation_is_as_it_would_be_read(conversation):
    """As the gateway opens it: the conversation is written with the turn."""
    owner, model = conversation.owner, conversation.language_model
    new = Conversation(owner=owner, language_model=model, options={"seed": 5})
    opened = new.open_turn([user_message("Hi")], language_model=model)
    opened = replace(opened, route=router.route_of(model, user=owner))
    claim = claim_store.claim(opened.turn.pk)
    read = _shown(turn_loader.load(claim))
    assert opened.is_conversation_new
    assert _shown(turn_loader.load(claim, opened)) == read
    stored = Conversation.objects.get(pk=new.pk)
    assert (stored.title, stored.options, stored.owner) == ("Hi", {"seed": 5}, owner)
    assert stored.created_at is not None


def test_a_turn_that_was_run_before_is_read(conversation):
    opened = _opened_over_a_page(conversation)
    turn = opened.turn
    first = claim_store.claim(turn.pk)
    turn_store.release(first, [{"type": "message", "id": "m", "content": []}], [])
    work = turn_loader.load(claim_store.claim(turn.pk), opened)
    assert list(work.task.partial) == [{"type": "message", "id": "m", "content": []}]


@pytest.mark.skipif(settings.IS_SCALED, reason="embedded alone keeps them")
async def test_a_turn_that_waited_for_room_is_read_when_it_has_some(
    conversation, say, running, monkeypatch, settings
):
    seen, read = [], turn_loader.load

    def noted(claim, opened, turn):
        seen.append(opened)
        return read(claim, opened, turn)

    monkeypatch.setattr(turn_loader, "load", noted)
    say(ANSWER, ANSWER)
    for is_full in (False, True):
        opened = await sync_to_async(_opened_over_a_page)(conversation)
        turn = opened.turn
        room = asyncio.Semaphore(int(not is_full))
        monkeypatch.setattr(engine.require_engine().dispatcher, "slots", room)
        engine.submit(turn.pk, turn.conversation_id, opened)
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

    monkeypatch.setattr("conversations.engine.loading.turn_loader.load", broken)
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


async def test_an_option_may_be_dropped_and_the_drop_is_reported(
    conversation, say, running
):
    say(ANSWER)
    await LanguageModel.objects.aupdate(capabilities={"sampling": "never"})
    turn, entries = await answer(
        conversation, options={"temperature": 0.5, "ignore_invalid_options": True}
    )
    assert turn.status == Turn.Status.COMPLETED
    found = await sync_to_async(replay)(turn.pk)  # as another process may read it
    for each in (entries, found.entries):
        degraded = [e.event for e in each if e.type == "parley:step.degraded"]
        known = [(event["step"], event["options"]) for event in degraded]
        assert known == [(1, ["temperature"])]
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
    """A turn whose process is lost, with its last snapshot."""
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
    return await submit_turn(
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
    return timedelta(seconds=-1) if settings.IS_SCALED else timedelta(minutes=1)


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
    deltas = [e.event["delta"] for e in entries if e.type.endswith("text.delta")]
    assert "".join(deltas) == "Hello there."  # in one piece if it comes from rows
    await turn.arefresh_from_db()
    assert (turn.status, turn.epoch) == (Turn.Status.COMPLETED, 2)


async def test_another_answer_does_not_wipe_out_the_first(conversation, say, running):
    say(ANSWER)
    turn = await interrupted(conversation, "Good day", lease_until=timezone.now())
    await sync_to_async(claim_store.release_all)()
    engine.submit(turn.pk)
    entries = await follow(turn)
    assert text_of(entries) == "Good dayHello there."


@pytest.mark.parametrize(
    ("replay", "runs", "state"),
    [("once", 0, "unknown"), ("idempotent", 1, "completed"), ("safe", 1, "completed")],
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


async def test_a_turn_past_its_deadline_ends_with_the_text_so_far(
    conversation, say, running, monkeypatch
):
    monkeypatch.setattr(settings, "TURN_DEADLINE", 0.01)
    say([TextDelta(0, "Well"), HANG])
    _, entries = await answer(conversation)
    response = entries[-1].event["response"]
    assert response["incomplete_details"] == {"reason": "deadline"}
    assert response["output"][0]["content"][0]["text"] == "Well"


async def test_a_snapshot_is_stored_once_a_second(conversation, say, running):
    say([TextDelta(0, "Well"), HANG])
    turn = await submit_turn(conversation)
    engine.submit(turn.pk)
    async for batch in engine.subscribe(turn.pk):
        if batch[-1].type == "response.output_text.delta":
            break
    await engine.require_engine().beat()
    await turn.arefresh_from_db()
    assert output_text(turn.partial) == "Well"
    await sync_to_async(engine.cancel)(turn)
    await follow(turn)


async def test_a_zombie_changes_nothing(conversation, say, running):
    gate = asyncio.Event()
    say([TextDelta(0, "Well"), gate, *ANSWER])
    turn = await submit_turn(conversation)
    engine.submit(turn.pk)
    async for batch in engine.subscribe(turn.pk):
        if batch[-1].type == "response.output_text.delta":
            break
    await Turn.objects.filter(pk=turn.pk).aupdate(epoch=7)  # another worker has it
    run = engine.require_engine().runs[turn.pk]
    gate.set()
    while engine.require_engine().runs:
        await asyncio.sleep(0)
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.RUNNING
    assert not await Item.objects.filter(turn=turn, origin="output").aexists()
    with pytest.raises(StaleEpoch):
        await sync_to_async(turn_store.advance)(run.claim, TurnProgress())


async def test_a_server_that_goes_down_hands_its_turns_over(
    conversation, say, settings
):
    settings.DRAIN_GRACE = 0.05
    say([TextDelta(0, "Hello"), HANG])
    await engine.start()
    turn = await submit_turn(conversation)
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
    turn = await submit_turn(conversation)
    claims = [await sync_to_async(claim_store.claim)(turn.pk) for _ in range(3)]
    assert [claim is not None for claim in claims] == [True, False, False]


async def test_the_cost_of_a_turn_does_not_grow_with_the_conversation(
    conversation,
):
    def queries(turns):
        for _ in range(turns):
            turn = conversation.open_turn([user_message("hi")]).turn
            turn.status = Turn.Status.COMPLETED
            turn.save()
        turn = conversation.open_turn([user_message("hi")]).turn
        claim = claim_store.claim(turn.pk)
        with CaptureQueriesContext(connection) as captured:
            turn_loader.load(claim)
        turn.status = Turn.Status.COMPLETED
        turn.save()
        return len(captured)

    await sync_to_async(queries)(1)  # fills the caches of rows that change seldom
    assert await sync_to_async(queries)(1) == await sync_to_async(queries)(30)


async def test_a_corrected_item_is_replayed_as_corrected(conversation, say, running):
    say(ANSWER)
    turn, _ = await answer(conversation)
    item = await Item.objects.select_related("turn").aget(origin="output")
    payload = {**item.payload, "content": [{**item.payload["content"][0], "text": "—"}]}
    await sync_to_async(item.correct)(payload)
    engine.forget(turn.pk)
    await asyncio.sleep(0)
    assert text_of(await follow(turn)) == "—"


async def test_a_structured_answer_is_strict_and_corrected_in_a_call_of_its_own(
    conversation, say, running
):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a"],
    }
    form = {"type": "json_schema", "name": "x", "schema": schema}
    await Conversation.objects.filter(pk=conversation.pk).aupdate(
        options={"text": {"format": form}}
    )
    script = say([TextDelta(0, '{"a":"1"}')], [TextDelta(0, '{"a":1,"b":null}')])
    await conversation.arefresh_from_db()
    turn, entries = await answer(conversation)
    assert turn.status == Turn.Status.COMPLETED
    assert text_of(entries) == '{"a":1}'
    assert all(request.text["format"]["strict"] for request in script.requests)
    calls = ModelCall.objects.filter(turn_id=turn.pk).order_by("id")
    assert [call.purpose async for call in calls] == ["answer", "correction"]
