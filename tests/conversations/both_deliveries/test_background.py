"""Background calls: what ends them, when, and what they may cost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import DataError, OperationalError, transaction

from conversations import engine
from conversations.engine import (
    background_calls,
    background_store,
    message_consequences,
)
from conversations.engine.background_store import CallClaim, ConcludedCall
from conversations.engine.message_consequences import CannotContinue
from conversations.models import Conversation, Item, ToolCall, Turn
from conversations.models.turn import CALLER
from llm.models import LanguageModel
from llm.telemetry import log_context
from llm.wire.deltas import (
    FinishDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import user_message
from tests.conversations.script import HANG
from tools.errors import ToolError
from tools.execute import CallOutcome
from tools.registry import Context, get_tool, tool

pytestmark = pytest.mark.django_db(transaction=True)

ANSWER = [TextDelta(0, "Done."), FinishDelta("stop")]
Call = Callable[[Context, dict[str, Any]], Any]


def calling(call_id: str = "c1", name: str = "dig") -> list[Any]:
    return [ToolCallDelta(0, call_id, name, "{}"), FinishDelta("tool_calls")]


async def submit_turn(conversation: Conversation, text: str = "Hi") -> Turn:
    opened = await sync_to_async(conversation.open_turn)([user_message(text)])
    turn = opened.turn
    engine.submit(turn.pk, conversation.pk)
    return turn


@transaction.atomic
def answered(conversation: Conversation) -> Turn:
    """In one transaction: a worker runs a turn as soon as its row is there."""
    turn = conversation.open_turn([user_message("Hi")]).turn
    Turn.objects.filter(pk=turn.pk).update(status="completed")
    return turn


async def ended(turn: Turn) -> Turn:
    async for _ in engine.subscribe(turn.pk):
        pass
    await turn.arefresh_from_db()
    return turn


# The end of the process


async def test_a_drain_gives_calls_in_the_background_its_grace(
    conversation, say, offer, settings
):
    settings.DRAIN_GRACE = 60
    begun, go, ends = asyncio.Event(), asyncio.Event(), []

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        begun.set()
        try:
            await go.wait()
        finally:
            ends.append("gone on" if go.is_set() else "cancelled")
        return "gold"

    say(calling(), ANSWER)
    offer(dig, replay="once")
    await engine.start()
    await ended(await submit_turn(conversation))
    await begun.wait()
    draining = asyncio.create_task(engine.drain())
    while not engine.is_draining():
        await asyncio.sleep(0)
    await asyncio.to_thread(lambda: None)  # a round through the threads and back
    assert ends == []
    go.set()
    await draining
    assert ends == ["gone on"]
    call = await ToolCall.objects.aget()
    assert (call.state, call.output) == ("completed", "gold")


async def test_calls_in_the_background_are_released_when_the_grace_is_over(
    conversation, say, offer, settings
):
    """The next process repeats the repeatable calls at once."""
    settings.DRAIN_GRACE = 0.01
    begun, runs = asyncio.Event(), []

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        runs.append(context.idempotency_key)
        begun.set()
        if len(runs) == 1:
            await asyncio.Event().wait()
        return "gold"

    say(calling(), ANSWER)
    offer(dig, replay="idempotent")
    await engine.start()
    turn = await ended(await submit_turn(conversation))
    await begun.wait()
    await engine.drain()
    call = await ToolCall.objects.aget()
    assert call.state == ToolCall.State.EXECUTING
    await engine.start()
    try:
        while not await Turn.objects.filter(parent=turn).aexists():
            await asyncio.sleep(0)
    finally:
        await engine.drain()
    await call.arefresh_from_db()
    assert (call.state, call.output) == ("completed", "gold")
    assert runs == [f"{turn.pk}:c1"] * 2


async def test_a_result_outlasts_any_outage_of_the_database(
    conversation, say, offer, running, monkeypatch
):
    conclude, outage = background_store.conclude, OperationalError("database is locked")
    failures = [outage] * (background_calls.TRIES + 2)

    def fail_first(claim: CallClaim, outcome: CallOutcome) -> ConcludedCall | None:
        if failures:
            raise failures.pop()
        return conclude(claim, outcome)

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        return "gold"

    monkeypatch.setattr(background_calls, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(background_store, "conclude", fail_first)
    say(calling(), ANSWER)
    offer(dig, replay="once")
    await ended(await submit_turn(conversation))
    await at_rest(conversation)
    call = await ToolCall.objects.aget()
    assert (call.state, call.output, failures) == ("completed", "gold", [])


async def test_a_result_that_the_database_always_refuses_is_given_up(
    conversation, say, offer, running, monkeypatch, caplog
):
    """It refuses this write, but renews the lease of the call all the while."""
    store, refused = background_store.conclude, []

    def refuse(claim: CallClaim, outcome: CallOutcome) -> ConcludedCall | None:
        if outcome.output != "gold":
            return store(claim, outcome)
        refused.append(claim)
        raise OperationalError("database is locked")

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        return "gold"

    monkeypatch.setattr(background_calls, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(background_calls, "MOST_HEARTBEATS", 3)
    monkeypatch.setattr(background_store, "conclude", refuse)
    say(calling(), ANSWER)
    offer(dig, replay="once")
    await ended(await submit_turn(conversation))
    while "failed: OperationalError" not in caplog.text:
        await asyncio.sleep(0)  # a heartbeat with nothing to renew does not wait
        await engine.require_engine().beat()
    await ToolCall.objects.aupdate(lease_until=None)  # as after it has expired
    engine.require_engine().wake_background()
    await at_rest(conversation)
    call = await ToolCall.objects.aget()
    assert (call.state, len({claim.epoch for claim in refused})) == ("unknown", 1)
    assert caplog.text.count("is not stored yet: OperationalError") == 1


async def test_a_result_waits_for_the_database_however_many_calls_begin_meanwhile(
    conversation, say, offer, running, monkeypatch
):
    """Each call that begins renews all leases, too."""
    conclude, renew, renewed = background_store.conclude, background_store.renew, []

    def refuse(claim: CallClaim, outcome: CallOutcome) -> ConcludedCall | None:
        if len(renewed) < 8:
            raise OperationalError("database is locked")
        return conclude(claim, outcome)

    def note(*arguments: Any) -> Any:
        renewed.append(1)
        return renew(*arguments)

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        return "gold"

    monkeypatch.setattr(background_calls, "FIRST_PAUSE", 0.0)
    monkeypatch.setattr(background_calls, "MOST_HEARTBEATS", 3)
    monkeypatch.setattr(background_store, "conclude", refuse)
    monkeypatch.setattr(background_store, "renew", note)
    say(calling(), ANSWER)
    offer(dig, replay="once")
    await ended(await submit_turn(conversation))
    while len(renewed) < 8:
        engine.require_engine().wake_background()
        await asyncio.sleep(0)
    await at_rest(conversation)
    call = await ToolCall.objects.aget()
    assert (call.state, call.output) == ("completed", "gold")


async def test_a_call_that_the_database_refuses_does_not_stop_those_behind_it(
    conversation, say, offer, running, monkeypatch, caplog
):
    claim, refused = background_store.claim, []

    def refuse_first(pk: int) -> CallClaim | None:
        if not refused or pk in refused:
            refused.append(pk)
            raise DataError("smallint out of range")
        return claim(pk)

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        return "gold"

    monkeypatch.setattr(background_store, "claim", refuse_first)
    say(ANSWER)
    offer(dig)
    await sync_to_async(with_call)(conversation, {})
    turn = await sync_to_async(with_call)(conversation, {})
    engine.require_engine().wake_background()
    while not await ToolCall.objects.filter(turn=turn, state="completed").aexists():
        await asyncio.sleep(0)
    assert "cannot be claimed: DataError" in caplog.text
    await ToolCall.objects.filter(pk__in=refused).aupdate(state="cancelled")
    await at_rest(conversation)


async def test_a_call_runs_in_the_context_of_its_own_turn(
    conversation, say, offer, running
):
    """Whatever request makes the engine look for calls."""
    seen = []

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        seen.append((log_context.request_id.get(), log_context.turn_id.get()))
        return "gold"

    say(ANSWER)
    offer(dig)
    turn = await sync_to_async(with_call)(conversation, {"request_id": "req_own"})
    log_context.request_id.set("req_of_another")
    engine.require_engine().wake_background()
    while not await Turn.objects.filter(parent=turn).aexists():
        await asyncio.sleep(0)
    await at_rest(conversation)
    assert seen == [("req_own", turn.pk)]


async def test_calls_beyond_the_limit_of_a_process_wait_in_their_order(
    conversation, say, offer, running, settings
):
    """One that a person cancels while it waits ends at once."""
    settings.MAX_BACKGROUND_CALLS = 2
    begun: list[str] = []
    may_end = [asyncio.Event() for _ in range(5)]

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        begun.append(context.call_id)
        await may_end[int(context.call_id)].wait()
        return "gold"

    async def begins(call_ids: list[str]) -> None:
        while len(begun) < len(call_ids):
            await asyncio.sleep(0)
        assert sorted(begun) == call_ids  # there is room for two at once

    say(*[ANSWER] * 5)
    offer(dig)
    turn = await sync_to_async(answered)(conversation)
    await sync_to_async(with_calls)(turn, "01234")
    await swept()
    await begins(["0", "1"])
    await ToolCall.objects.filter(call_id="3").aupdate(cancel_requested=True)
    await swept()
    while (await ToolCall.objects.aget(call_id="3")).state != "cancelled":
        await asyncio.sleep(0)
    assert sorted(begun) == ["0", "1"]
    may_end[1].set()
    await begins(["0", "1", "2"])
    may_end[0].set()
    await begins(["0", "1", "2", "4"])
    for event in may_end:
        event.set()
    while await ToolCall.objects.filter(state="executing").aexists():
        await asyncio.sleep(0)
    await at_rest(conversation)


def with_calls(turn: Turn, call_ids: str) -> None:
    for position, call_id in enumerate(call_ids, 1):
        ToolCall.objects.create(
            turn=turn, call_id=call_id, name="dig", state="executing", blocking=False
        )
        payload = {"type": "function_call", "id": f"f{call_id}", "call_id": call_id}
        payload |= {"name": "dig", "arguments": "{}", "status": "completed"}
        Item.of(turn, position, payload, origin=Item.Origin.OUTPUT).save()


@transaction.atomic
def with_call(conversation: Conversation, named: dict[str, str]) -> Turn:
    """A finished turn with a background call that no process runs yet."""
    turn = answered(conversation)
    Turn.objects.filter(pk=turn.pk).update(options={CALLER: named})
    ToolCall.objects.create(
        turn=turn, call_id="c1", name="dig", state="executing", blocking=False
    )
    payload = {"type": "function_call", "id": "f", "call_id": "c1", "name": "dig"}
    payload |= {"arguments": "{}", "status": "completed"}
    Item.of(turn, 1, payload, origin=Item.Origin.OUTPUT).save()
    return turn


def test_results_that_wait_for_a_turn_hide_no_others(conversation):
    for is_busy in (True, True, True, False):
        chat = Conversation.objects.create(owner=conversation.owner)
        ToolCall.objects.create(
            turn=answered(chat),
            call_id="c1",
            name="dig",
            state="completed",
            blocking=False,
            output="gold",
        )
        if is_busy:
            chat.open_turn([user_message("And?")])
    found = background_store.find_conversations_to_wake(10)
    assert found == background_store.find_conversations_to_wake(1) == [chat.pk]


# Events


async def events_of(turn: Turn, may_answer: asyncio.Event) -> list[dict[str, Any]]:
    """The turn's own events, live: its model answers once they are subscribed to."""
    found = []
    async for entries in engine.subscribe(turn.pk):
        may_answer.set()
        found += [entry.event for entry in entries]
    return [event for event in found if event["type"].startswith("parley:")]


@pytest.mark.parametrize("fails", [False, True])
async def test_late_results_have_events_beside_the_message(
    conversation, say, offer, running, fails
):
    """The model thinks, and calls the tool twice in parallel."""
    gates = {"c1": asyncio.Event(), "c2": asyncio.Event()}

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        await gates[context.call_id].wait()
        if fails:
            raise ToolError("the ground is frozen.")
        return f"gold of {context.call_id}"

    both = [
        ReasoningDelta(0, "Two places."),
        ToolCallDelta(1, "c1", "dig", "{}"),
        ToolCallDelta(2, "c2", "dig", "{}"),
        UsageDelta(input_tokens=7, output_tokens=3),
        FinishDelta("tool_calls"),
    ]
    may_answer = [asyncio.Event() for _ in range(3)]
    say([may_answer[0], both], ANSWER, *([gate, *ANSWER] for gate in may_answer[1:]))
    offer(dig)
    turn = await submit_turn(conversation)
    first = await events_of(turn, may_answer[0])
    calls = [e["call_id"] for e in first if e["type"] == "parley:tool_call.accepted"]
    assert calls == ["c1", "c2"]
    finished = [e for e in first if e["type"] == "parley:step.finished"]
    assert [e["step"] for e in finished] == [1, 2]
    assert finished[0]["usage"]["input_tokens"] == 7
    delivered_in = turn
    for call_id, gate in zip(("c2", "c1"), may_answer[1:], strict=True):
        gates[call_id].set()
        while not (later := await Turn.objects.filter(parent=delivered_in).afirst()):
            await asyncio.sleep(0)
        delivered_in = later
        events = await events_of(later, gate)
        arrived, ended_as = (
            next(event for event in events if event["type"].startswith(kind))
            for kind in ("parley:result.", "parley:background_call.")
        )
        state = "failed" if fails else "completed"
        assert ended_as["type"] == f"parley:background_call.{state}"
        assert arrived["call_id"] == ended_as["call_id"] == call_id
        assert (arrived["name"], arrived["state"]) == ("dig", state)
        assert ("frozen" in ended_as.get("error", "")) == fails
        item = await Item.objects.aget(turn=later, type="message", payload__role="user")
        assert item.payload["id"] == ended_as["item_id"]
        assert item.payload["parley:call_id"] == call_id
    assert not await Turn.objects.filter(parent=delivered_in).aexists()


# What one message may cause


class Loop:
    """A model that calls a tool in the background again at each result, and never ends
    by itself; the tool is done at once."""

    def __init__(self, say: Any, offer: Any, number: int = 100, **fields: Any) -> None:
        self.runs: list[str] = []
        replies = []
        for n in range(number):
            replies += [calling(f"c{n}"), ANSWER]
        self.script = say(*replies)
        offer(self._dig, **fields)

    async def _dig(self, context: Context, arguments: dict[str, Any]) -> str:
        self.runs.append(context.call_id)
        return f"gold of {context.call_id}"


async def at_rest(conversation: Conversation) -> list[Turn]:
    """The turns, once nothing is under way any more."""
    turns = Turn.objects.filter(conversation=conversation)
    calls = ToolCall.objects.in_background().filter(turn__conversation=conversation)
    while await turns.not_finished().aexists() or await calls.aexists():
        await asyncio.sleep(0)
    return [turn async for turn in turns.order_by("created_at", "id")]


async def test_a_message_causes_as_many_turns_as_it_may(
    conversation, say, offer, settings, running
):
    settings.MAX_TURNS_PER_MESSAGE = 3
    loop = Loop(say, offer)
    turn = await submit_turn(conversation)
    turns = await halted(turn)
    assert len(turns) == 3
    assert [each.root_id for each in turns] == [turn.pk] * 3
    request_count = len(loop.script.requests)
    await swept()
    assert await Turn.objects.acount() == 3
    assert len(loop.script.requests) == request_count
    undelivered = ToolCall.objects.awaiting_delivery()
    assert [call.output async for call in undelivered] == [f"gold of {loop.runs[-1]}"]


async def halted(turn: Turn) -> list[Turn]:
    while True:
        turns = await at_rest(await Conversation.objects.aget(turns=turn))
        await turn.arefresh_from_db()
        if turn.halted_by:
            return turns
        await asyncio.sleep(0)


async def swept() -> None:
    """The engine has looked for what is left to do, twice."""
    for _ in range(2):
        await engine.require_engine().sweep()


async def test_a_turn_without_a_step_left_leaves_the_result_to_the_next(
    conversation, say, offer, settings, running
):
    settings.TURN_MAX_STEPS = 2
    gate = asyncio.Event()

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        return "gold"

    script = say(calling(), [gate, *ANSWER], ANSWER)
    offer(dig)
    turn = await submit_turn(conversation)
    while len(script.requests) < 2 or not await ToolCall.objects.aexists():
        await asyncio.sleep(0)
    while await ToolCall.objects.in_background().aexists():
        await asyncio.sleep(0)
    gate.set()
    await ended(turn)
    assert turn.status == Turn.Status.COMPLETED
    await at_rest(conversation)
    later = await Turn.objects.aget(caused_by=turn)
    assert (await ToolCall.objects.aget()).delivered_in_id == later.pk
    assert len(script.requests) == 3


async def test_continuing_doubles_what_the_message_may_use(
    conversation, say, offer, settings, running
):
    settings.MAX_TURNS_PER_MESSAGE = 3
    loop = Loop(say, offer)
    turn = await submit_turn(conversation)
    await halted(turn)
    opened = await sync_to_async(engine.continue_message)(turn)
    turns = await halted(turn)
    assert [each.root_id for each in turns] == [turn.pk] * 6
    assert opened.pk == turns[3].pk
    calls = [call async for call in ToolCall.objects.filter(delivered_in=opened)]
    assert [call.output for call in calls] == [f"gold of {loop.runs[2]}"]


async def test_continuing_where_nothing_waits_opens_no_turn(
    conversation, say, offer, running
):
    say(ANSWER)
    turn = await ended(await submit_turn(conversation))
    with pytest.raises(CannotContinue):
        await sync_to_async(engine.continue_message)(turn)


async def test_two_concurrent_continuations_open_one_turn(
    conversation, say, offer, settings, running
):
    settings.MAX_TURNS_PER_MESSAGE = 1
    Loop(say, offer)
    turn = await submit_turn(conversation)
    await halted(turn)
    await sync_to_async(engine.continue_message)(turn)
    with pytest.raises(CannotContinue):
        await sync_to_async(engine.continue_message)(turn)


async def test_a_users_message_delivers_results_of_an_earlier_one(
    conversation, say, offer, settings, running
):
    """And has a budget of its own."""
    settings.MAX_TURNS_PER_MESSAGE = 2
    loop = Loop(say, offer)
    first = await submit_turn(conversation)
    await halted(first)
    second = await submit_turn(conversation, "And?")
    turns = await halted(second)
    assert [each.root_id for each in turns] == [first.pk] * 2 + [second.pk] * 2
    delivered = ToolCall.objects.filter(delivered_in=second, call_id=loop.runs[1])
    assert await delivered.aexists()
    assert [halt.root.pk for halt in await halts_of(conversation)] == [second.pk]


async def test_a_message_costs_as_much_as_it_may(
    conversation, say, offer, settings, running
):
    settings.MAX_COST_PER_MESSAGE = 1.0
    await priced(conversation)
    loop = Loop(say, offer)
    loop.script.calls = [[*call, UsageDelta(400_000, 0)] for call in loop.script.calls]
    turn = await submit_turn(conversation)
    turns = await halted(turn)
    assert turn.halted_by == Turn.HaltedBy.MAX_COST
    assert len(loop.script.requests) == 3  # 0.4 USD each
    assert await Turn.objects.acount() == len(turns)


async def test_a_turn_over_its_cost_limit_stops_until_it_is_continued(
    conversation, say, offer, settings, running
):
    settings.MAX_COST_PER_MESSAGE = 0.5
    await priced(conversation)

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        return "gold"

    script = say(*[[*calling(f"c{n}"), UsageDelta(600_000, 0)] for n in range(3)])
    offer(dig, blocking=True)
    turn = await ended(await submit_turn(conversation))
    assert (turn.status, turn.incomplete_reason) == ("incomplete", "max_cost")
    assert len(script.requests) == 1
    assert (await ToolCall.objects.aget()).output == "gold"
    (halt,) = await halts_of(conversation)
    assert (halt.root.pk, halt.reason, halt.results) == (turn.pk, "max_cost", [])
    await ended(await sync_to_async(engine.continue_message)(turn))
    assert len(script.requests) == 2


async def halts_of(conversation: Conversation) -> list[message_consequences.Halt]:
    found = ToolCall.objects.background_or_halted().filter(
        turn__conversation=conversation
    )
    last = await Turn.objects.select_related("caused_by").alast()
    return message_consequences.halts([call async for call in found], last)


async def priced(conversation: Conversation) -> None:
    prices = {"input": 1, "output": 1}
    await LanguageModel.objects.filter(conversation=conversation).aupdate(prices=prices)


async def test_results_of_a_halted_message_do_not_delay_those_of_others(
    conversation, say, offer, settings, running, monkeypatch
):
    monkeypatch.setattr(background_calls, "BATCH_SIZE", 1)
    settings.MAX_TURNS_PER_MESSAGE = 1
    Loop(say, offer)
    await halted(await submit_turn(conversation))
    settings.MAX_TURNS_PER_MESSAGE = 10
    other = await sync_to_async(Conversation.objects.create)(
        owner_id=conversation.owner_id, language_model_id=conversation.language_model_id
    )
    turn = await sync_to_async(answered)(other)
    await ToolCall.objects.acreate(
        turn=turn, call_id="x", name="dig", state="completed", blocking=False
    )
    await swept()
    assert await Turn.objects.filter(caused_by=turn).aexists()


# Stop


class Slow:
    """A tool that runs until it is cancelled."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []

    async def __call__(self, context: Context, arguments: dict[str, Any]) -> str:
        self.begun.append(context.call_id)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.append(context.call_id)
            raise
        return "never"


async def test_stop_ends_the_turn_and_the_calls_that_its_message_caused(
    conversation, say, offer, running
):
    script = say(calling(), [TextDelta(0, "Well"), HANG])
    slow = Slow()
    offer(slow)
    turn = await submit_turn(conversation)
    while not slow.begun or len(script.requests) < 2:
        await asyncio.sleep(0)
    await sync_to_async(engine.cancel)(turn)
    await at_rest(conversation)
    await swept()
    assert (slow.cancelled, script.closed) == (["c1"], 2)
    assert len(script.requests) == 2
    assert await Turn.objects.acount() == 1
    assert (await ToolCall.objects.aget()).state == "cancelled"


async def test_stop_of_a_wake_ends_all_of_its_message_and_nothing_else(
    conversation, say, offer, running
):
    gate, slow = asyncio.Event(), Slow()

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        if context.call_id == "c2":
            await gate.wait()
            return "gold"
        return str(await slow(context, arguments))

    both = [
        ToolCallDelta(0, "c1", "dig", "{}"),
        ToolCallDelta(1, "c2", "dig", "{}"),
        FinishDelta("tool_calls"),
    ]
    older = [ToolCallDelta(0, "c0", "dig", "{}"), FinishDelta("tool_calls")]
    script = say(older, ANSWER, both, ANSWER, [TextDelta(0, "Well"), HANG])
    offer(dig)
    first = await ended(await submit_turn(conversation))
    root = await ended(await submit_turn(conversation, "And now?"))
    gate.set()
    while len(script.requests) < 5:
        await asyncio.sleep(0)
    wake = await Turn.objects.aget(caused_by=root)
    await sync_to_async(engine.cancel)(wake)
    while await Turn.objects.not_finished().aexists() or not slow.cancelled:
        await asyncio.sleep(0)
    await swept()
    assert slow.cancelled == ["c1"]
    older_call = await ToolCall.objects.aget(turn=first)
    assert (older_call.state, older_call.cancel_requested) == ("executing", False)
    await sync_to_async(engine.cancel_call)(older_call)  # it has its own
    await at_rest(conversation)
    assert slow.cancelled == ["c1", "c0"]


async def test_a_result_that_has_come_opens_nothing_once_its_message_was_stopped(
    conversation, say, offer, running
):
    script = say(calling(), [TextDelta(0, "Well"), HANG], ANSWER)
    done = asyncio.Event()

    async def dig(context: Context, arguments: dict[str, Any]) -> str:
        done.set()
        return "gold"

    offer(dig)
    turn = await submit_turn(conversation)
    await done.wait()
    while await ToolCall.objects.in_background().aexists() or len(script.requests) < 2:
        await asyncio.sleep(0)
    await sync_to_async(engine.cancel)(turn)
    await at_rest(conversation)
    await swept()
    assert await Turn.objects.acount() == 1
    assert (await ToolCall.objects.aget()).output == "gold"
    await ended(await submit_turn(conversation, "And?"))
    assert await ToolCall.objects.filter(delivered_in=None).acount() == 0


async def test_a_call_that_begins_as_its_message_is_stopped_ends_unrun(
    conversation, say, offer, running
):
    say(ANSWER)
    slow = Slow()
    offer(slow)
    turn = await ended(await submit_turn(conversation))
    await sync_to_async(engine.cancel)(turn)
    await ToolCall.objects.acreate(
        turn=turn, call_id="c1", name="dig", state="executing", blocking=False
    )
    payload = {"type": "function_call", "id": "f", "call_id": "c1", "name": "dig"}
    await Item.objects.acreate(
        turn=turn,
        position=9,
        origin="output",
        type="function_call",
        payload={**payload, "arguments": "{}", "status": "completed"},
    )
    await swept()
    await at_rest(conversation)
    assert slow.begun == []
    assert (await ToolCall.objects.aget()).state == "cancelled"


@pytest.mark.parametrize("blocking", [True, False])
async def test_a_thread_that_cannot_be_ended_is_abandoned(
    conversation, say, offer, running, blocking
):
    begun, release = threading.Event(), threading.Event()

    @tool(name="dig", replay="once")
    def dig() -> str:
        begun.set()
        release.wait()
        return "gold"

    say(calling(), [HANG])
    offer(get_tool(dig).call, blocking=blocking)
    turn = await submit_turn(conversation)
    try:
        await asyncio.to_thread(begun.wait)
        await sync_to_async(engine.cancel)(turn)
        await at_rest(conversation)
    finally:
        release.set()
    call = await ToolCall.objects.aget()
    assert call.state == ToolCall.State.ABANDONED
    assert "may still take effect" in call.error
