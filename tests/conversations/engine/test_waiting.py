"""Turns that wait for a person, and calls that the model does not wait for, over real
rows in the embedded delivery."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from channels.layers import get_channel_layer
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.utils import timezone

from conversations import engine
from conversations.engine import background_store, lease_store, question_store
from conversations.engine.notifications import group_of
from conversations.models import (
    AlreadyDecided,
    Conversation,
    Item,
    Question,
    ToolCall,
    Turn,
)
from llm.http import client
from llm.models import ApiKey, LanguageModel, Provider
from llm.wire.deltas import FinishDelta, TextDelta, ToolCallDelta
from llm.wire.items import user_message
from tests.conversations.script import Script
from tools.loop.late_results import CALL_ID_KEY
from tools.loop.tool_calls import PLACEHOLDER
from tools.models import PermittedTools
from tools.models import Tool as ToolRow
from tools.registry import Accepted, Approval, RuntimeTool

ANSWER = [TextDelta(0, "Done."), FinishDelta("stop")]
SCHEMA = {
    "type": "object",
    "properties": {"to": {"type": "string"}},
    "required": ["to"],
}


def calling(name="send", arguments='{"to": "bob"}', call_id="c1"):
    return [ToolCallDelta(0, call_id, name, arguments), FinishDelta("tool_calls")]


@pytest.fixture
def conversation(transactional_db):
    user = User.objects.create_user("alice")
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    model = LanguageModel.objects.create(provider=provider, name="demo")
    return Conversation.objects.create(owner=user, language_model=model)


@pytest.fixture
def say(monkeypatch):
    def say(*calls):
        script = Script(*calls)
        monkeypatch.setattr(client, "stream", script)
        return script

    return say


@pytest.fixture
def offer(monkeypatch):
    """Offer these tools; returns what they were called with."""
    runs = []

    def offer(result="sent", **fields):
        async def send(context, arguments):
            runs.append((arguments, context.idempotency_key))
            return await result(context) if callable(result) else result

        tool = RuntimeTool(
            name="send", description="", parameters=SCHEMA, call=send, **fields
        )
        monkeypatch.setattr(
            "conversations.engine.loading.available_tools.permitted_tools",
            lambda turn: PermittedTools({"send": tool}),
        )
        monkeypatch.setattr(
            type(ToolRow.objects), "available", lambda self, user: {"send": tool}
        )
        return runs

    return offer


@pytest.fixture
async def running(transactional_db, settings):
    settings.DRAIN_GRACE = 0.1
    await engine.start()
    yield
    await engine.drain()


async def restart():
    await engine.drain()
    await engine.start()


async def submit_turn(conversation, text="Hi"):
    opened = await sync_to_async(conversation.open_turn)([user_message(text)])
    turn = opened.turn
    engine.submit(turn.pk, conversation.pk)
    return turn


async def events_until(turn, type_):
    found = []
    async for batch in engine.subscribe(turn.pk):
        for entry in batch:
            found.append(entry.event)
            if entry.type == type_:
                return found
    raise AssertionError(f"no {type_} in {[e['type'] for e in found]}")


async def ended(turn):
    await events_until(turn, "response.completed")
    await turn.arefresh_from_db()
    return turn


async def wait_for_question(turn):
    events = await events_until(turn, "parley:turn.waiting")
    (question,) = [
        e["question"] for e in events if e["type"] == "parley:approval.requested"
    ]
    return await Question.objects.select_related("tool_call").aget(pk=question["id"])


async def decide(question, action, **data):
    user = await User.objects.aget(username="alice")
    if await sync_to_async(question.decide)(user, action, **data):
        engine.submit(question.tool_call.turn_id)


async def outputs(turn):
    rows = Item.objects.filter(turn=turn, type="function_call_output")
    return [row.payload["output"] async for row in rows]


async def until(condition):
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0)


# Approval


async def test_a_call_in_need_of_approval_runs_once_a_person_agrees(
    conversation, say, offer, running
):
    say(calling(), ANSWER)
    runs = offer(approval=Approval(policy="always"))
    turn = await submit_turn(conversation)
    question = await wait_for_question(turn)
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.WAITING
    assert not runs
    await decide(question, "accept")
    await ended(turn)
    assert [arguments for arguments, _ in runs] == [{"to": "bob"}]
    assert await outputs(turn) == ["sent"]


async def test_a_question_is_delivered_even_if_a_heartbeat_finds_its_turn_suspended(
    conversation, say, offer, running, monkeypatch
):
    """Between the commit of the row and the events."""
    say(calling(), ANSWER)
    offer(approval=Approval(policy="always"))
    suspend, loop = question_store.suspend, asyncio.get_running_loop()

    def seen_at_once(claim, *rest):
        questions = suspend(claim, *rest)
        assert lease_store.heartbeat({claim: None}).lost == [claim]
        loop.call_soon_threadsafe(engine.require_engine().dispatcher.fence, claim)
        return questions

    monkeypatch.setattr(question_store, "suspend", seen_at_once)
    async with asyncio.timeout(30):
        question = await wait_for_question(await submit_turn(conversation))
    assert question.state == Question.State.OPEN


async def test_a_question_outlives_the_process(conversation, say, offer, running):
    say(calling(), ANSWER)
    runs = offer(approval=Approval(policy="always"))
    turn = await submit_turn(conversation)
    question = await wait_for_question(turn)
    await restart()
    await restart()
    assert not runs
    await decide(question, "accept")
    await ended(turn)
    assert len(runs) == 1


async def test_edited_arguments_run_and_reach_the_model(
    conversation, say, offer, running
):
    script = say(calling(), ANSWER)
    runs = offer(approval=Approval(policy="always"))
    question = await wait_for_question(turn := await submit_turn(conversation))
    await decide(question, "accept", arguments={"to": "carol"})
    await ended(turn)
    assert runs[0][0] == {"to": "carol"}
    (output,) = await outputs(turn)
    assert '{"to":"carol"}' in output
    assert output.endswith("sent")
    await question.arefresh_from_db()
    assert question.arguments == {"to": "bob"}
    assert question.answer == {"to": "carol"}
    assert script.requests[-1].items[-1]["output"] == output


async def test_arguments_that_do_not_fit_leave_the_question_open(
    conversation, say, offer, running
):
    say(calling(), ANSWER)
    offer(approval=Approval(policy="always"))
    question = await wait_for_question(await submit_turn(conversation))
    with pytest.raises(ValidationError, match="do not fit"):
        await decide(question, "accept", arguments={"to": 7})
    await question.arefresh_from_db()
    assert question.state == Question.State.OPEN


@pytest.mark.parametrize("note", ["not him", "not him."])
async def test_a_declined_call_never_runs_and_the_model_goes_on(
    conversation, say, offer, running, note
):
    say(calling(), ANSWER)
    runs = offer(approval=Approval(policy="always"))
    question = await wait_for_question(turn := await submit_turn(conversation))
    await decide(question, "decline", note=note)
    await ended(turn)
    assert not runs
    assert await outputs(turn) == ["Error: a person declined this call: not him."]
    call = await ToolCall.objects.aget(turn=turn)
    assert call.state == ToolCall.State.CANCELLED
    assert call.error == "Declined: not him."


async def test_a_question_is_decided_once(conversation, say, offer, running):
    say(calling(), ANSWER)
    offer(approval=Approval(policy="always"))
    question = await wait_for_question(await submit_turn(conversation))
    again = await Question.objects.select_related("tool_call").aget(pk=question.pk)
    await decide(question, "accept")
    with pytest.raises(AlreadyDecided):
        await decide(again, "decline")


async def test_stop_ends_a_turn_that_waits(conversation, say, offer, running):
    say(calling(), ANSWER)
    runs = offer(approval=Approval(policy="always"))
    question = await wait_for_question(turn := await submit_turn(conversation))
    await sync_to_async(engine.cancel)(turn)
    await events_until(turn, "response.incomplete")
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.CANCELLED
    await question.arefresh_from_db()
    assert question.state == Question.State.CANCELLED
    assert not runs


async def test_the_first_approval_in_a_conversation_is_enough(
    conversation, say, offer, running
):
    say(calling(), ANSWER, calling(call_id="c2"), ANSWER)
    runs = offer(approval=Approval(policy="first"))
    question = await wait_for_question(turn := await submit_turn(conversation))
    await decide(question, "accept")
    await ended(turn)
    await ended(await submit_turn(conversation))
    assert len(runs) == 2


async def test_a_revoked_approval_asks_again_in_the_next_turn(
    conversation, say, offer, running
):
    say(calling(), ANSWER, calling(call_id="c2"), ANSWER)
    runs = offer(approval=Approval(policy="first"))
    question = await wait_for_question(turn := await submit_turn(conversation))
    await decide(question, "accept")
    await ended(turn)
    await Question.objects.aupdate(revoked_at=timezone.now())
    again = await wait_for_question(await submit_turn(conversation))
    assert again.pk != question.pk
    assert len(runs) == 1


async def test_a_revoked_approval_refuses_the_next_call_of_a_turn_that_runs(
    conversation, say, offer, running
):
    async def revoke(context):
        await Question.objects.aupdate(revoked_at=timezone.now())
        return "sent"

    say(calling(), calling(call_id="c2"), ANSWER)
    runs = offer(result=revoke, approval=Approval(policy="first"))
    question = await wait_for_question(turn := await submit_turn(conversation))
    await decide(question, "accept")
    await ended(turn)
    assert len(runs) == 1
    sent, refused = await outputs(turn)
    assert sent == "sent"
    assert "was revoked" in refused


@pytest.mark.parametrize(("to", "waits"), [("all", True), ("bob", False)])
async def test_a_rule_on_arguments_decides_whether_approval_is_needed(
    conversation, say, offer, running, to, waits
):
    say(calling(arguments=f'{{"to": "{to}"}}'), ANSWER)
    rule = {"properties": {"to": {"const": "all"}}}
    runs = offer(approval=Approval(policy="rule", rule=rule))
    turn = await submit_turn(conversation)
    if waits:
        await wait_for_question(turn)
    else:
        await ended(turn)
    assert bool(runs) is not waits


async def test_invalid_arguments_are_an_error_and_no_question(
    conversation, say, offer, running
):
    say(calling(arguments="{}"), ANSWER)
    offer(approval=Approval(policy="always"))
    turn = await ended(await submit_turn(conversation))
    assert "do not fit" in (await outputs(turn))[0]
    assert not await Question.objects.aexists()


# Forms


async def test_a_tool_asks_a_person_and_reads_the_answer(
    conversation, say, offer, running
):
    async def choose(context):
        form = {"type": "object", "properties": {"size": {"type": "integer"}}}
        answer = await context.asking("Which size?", form)
        return f"{answer.action} {answer.content.get('size')}"

    say(calling(), ANSWER)
    offer(result=choose)
    turn = await submit_turn(conversation)
    events = await events_until(turn, "parley:approval.requested")
    pk = events[-1]["question"]["id"]
    question = await Question.objects.select_related("tool_call").aget(pk=pk)
    assert question.kind == "form"
    with pytest.raises(ValidationError):
        await decide(question, "accept", content={"size": "big"})
    await decide(question, "accept", content={"size": 3})
    engine.notify_decision(question)
    await ended(turn)
    assert await outputs(turn) == ["accept 3"]


async def test_a_form_that_its_tool_no_longer_waits_for_is_closed(
    conversation, say, offer, running
):
    is_shown = asyncio.Event()

    async def choose(context):
        asking = asyncio.create_task(context.asking("Which?", {"type": "object"}))
        await is_shown.wait()
        asking.cancel()
        await asyncio.wait([asking])
        return "gone on"

    say(calling(), ANSWER)
    offer(result=choose)
    turn = await submit_turn(conversation)
    await events_until(turn, "parley:approval.requested")
    is_shown.set()
    closed = (await events_until(turn, "parley:question.closed"))[-1]
    question = await Question.objects.aget()
    assert (closed["id"], closed["state"]) == (question.pk, "cancelled")
    await ended(turn)
    assert await outputs(turn) == ["gone on"]


async def test_a_form_that_is_given_up_while_it_is_stored_is_closed(
    conversation, say, offer, running, monkeypatch
):
    ask, may_store, is_storing = question_store.ask, threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask_slowly(*args):
        loop.call_soon_threadsafe(is_storing.set)
        may_store.wait(60)
        return ask(*args)

    async def choose(context):
        asking = asyncio.create_task(context.asking("Which?", {"type": "object"}))
        await is_storing.wait()
        asking.cancel()
        await asyncio.wait([asking])
        may_store.set()
        await until(Question.objects.filter(state="cancelled").aexists)
        return "gone on"

    monkeypatch.setattr(question_store, "ask", ask_slowly)
    say(calling(), ANSWER)
    offer(result=choose)
    turn = await ended(await submit_turn(conversation))
    assert await outputs(turn) == ["gone on"]


async def test_a_tool_whose_form_is_deleted_does_not_wait_for_ever(
    conversation, say, offer, running
):
    async def choose(context):
        return (await context.asking("Which size?", {"type": "object"})).action

    say(calling(), ANSWER)
    offer(result=choose)
    turn = await submit_turn(conversation)
    await events_until(turn, "parley:approval.requested")
    question = await Question.objects.select_related("tool_call").aget()
    await Question.objects.all().adelete()
    engine.notify_decision(question)
    async with asyncio.timeout(30):
        await ended(turn)
    assert await outputs(turn) == ["cancel"]


# Calls in the background


async def test_a_late_result_reaches_the_model_in_a_new_turn(
    conversation, say, offer, running
):
    go = asyncio.Event()

    async def slow(context):
        await go.wait()
        return "report ready"

    script = say(calling(), ANSWER)
    offer(result=slow, blocking=False)
    turn = await ended(await submit_turn(conversation))
    assert await outputs(turn) == [PLACEHOLDER]
    call = await ToolCall.objects.aget(turn=turn)
    assert (call.state, call.blocking) == (ToolCall.State.EXECUTING, False)
    go.set()
    await until(lambda: Turn.objects.filter(parent=turn).aexists())
    later = await Turn.objects.aget(parent=turn)
    await ended(later)
    await call.arefresh_from_db()
    assert call.delivered_in_id == later.pk
    result = script.requests[-1].items[-1]
    assert result["role"] == "user"
    assert result["content"][0]["text"].endswith("report ready")
    assert result[CALL_ID_KEY] == "c1"


async def test_open_pages_are_notified_of_the_turn_that_a_result_opens(
    conversation, say, offer, running
):
    async def order(context):
        return Accepted()

    say(calling(), ANSWER)
    offer(result=order, blocking=False)
    turn = await ended(await submit_turn(conversation))
    layer = get_channel_layer()
    page = await layer.new_channel()
    await layer.group_add(group_of(conversation.pk), page)
    await until(lambda: ToolCall.objects.exclude(accepted_at=None).aexists())
    call = await ToolCall.objects.aget(turn=turn)
    engine.dispatch_result(await sync_to_async(background_store.deliver)(call.pk, "42"))
    notification = await layer.receive(page)
    later = await Turn.objects.aget(parent=turn)
    assert notification == {"type": "turn.queued", "turn": later.pk}
    await ended(later)


async def test_results_that_come_together_make_one_model_call(
    conversation, say, offer, running
):
    go = asyncio.Event()

    async def slow(context):
        await go.wait()
        return context.call_id

    both = [
        ToolCallDelta(0, "c1", "send", '{"to": "a"}'),
        ToolCallDelta(1, "c2", "send", '{"to": "b"}'),
        FinishDelta("tool_calls"),
    ]
    gate = asyncio.Event()
    script = say(both, [gate, *ANSWER], ANSWER)
    offer(result=slow, blocking=False)
    turn = await submit_turn(conversation)
    await until(lambda: _executing(2))
    go.set()
    await until(lambda: _executing(0))
    gate.set()
    await ended(turn)
    assert len(script.requests) == 3  # in the turn that was still open
    assert not await Turn.objects.filter(parent=turn).aexists()
    results = [i for i in script.requests[-1].items if CALL_ID_KEY in i]
    assert len(results) == 2


async def _executing(number):
    calls = ToolCall.objects.in_background()
    return await calls.acount() == number and await ToolCall.objects.acount() == 2


async def test_work_elsewhere_is_delivered_once_after_two_restarts(
    conversation, say, offer, running
):
    async def order(context):
        return Accepted()

    say(calling(), ANSWER)
    runs = offer(result=order, blocking=False)
    turn = await ended(await submit_turn(conversation))
    call = await ToolCall.objects.aget(turn=turn)
    await until(lambda: ToolCall.objects.exclude(accepted_at=None).aexists())
    await restart()
    await restart()
    concluded = await sync_to_async(background_store.deliver)(call.pk, "42")
    engine.dispatch_result(concluded)
    with pytest.raises(background_store.TooLate):
        await sync_to_async(background_store.deliver)(call.pk, "43")
    later = await Turn.objects.aget(parent=turn)
    await ended(later)
    await call.arefresh_from_db()
    assert (call.output, call.delivered_in_id) == ("42", later.pk)
    assert call.late_at
    assert len(runs) == 1
    assert not await Turn.objects.filter(parent=later).aexists()


@pytest.mark.slow
@pytest.mark.smoke
async def test_a_deferred_result_is_polled(conversation, say, offer, running):
    answers = [Accepted("job-1", 0.01), "finished"]

    async def order(context):
        return Accepted("job-1", 0.01)

    async def poll(context, token):
        assert token == "job-1"
        return answers.pop(0)

    say(calling(), ANSWER)
    offer(result=order, blocking=False, poll=poll)
    turn = await ended(await submit_turn(conversation))
    await until(lambda: Turn.objects.filter(parent=turn).aexists())
    call = await ToolCall.objects.aget(turn=turn)
    assert (call.state, call.output) == ("completed", "finished")


@pytest.mark.parametrize(
    ("replay", "state", "times"),
    [("once", "unknown", 1), ("safe", "completed", 2), ("idempotent", "completed", 2)],
)
async def test_a_call_in_the_background_is_repeated_only_if_it_may_be(
    conversation, say, offer, running, replay, state, times
):
    hang = [True]

    async def slow(context):
        if hang:
            await asyncio.Event().wait()
        return "ok"

    say(calling(), ANSWER)
    runs = offer(result=slow, blocking=False, replay=replay)
    turn = await ended(await submit_turn(conversation))
    await until(lambda: _ran(runs, 1))
    hang.clear()
    await restart()
    await until(lambda: Turn.objects.filter(parent=turn).aexists())
    call = await ToolCall.objects.aget(turn=turn)
    assert call.state == state
    assert len(runs) == times
    assert len({key for _, key in runs}) == 1


async def _ran(runs, times):
    return len(runs) == times


async def test_a_cancelled_call_is_reported_to_the_model_in_the_next_turn(
    conversation, say, offer, running
):
    async def slow(context):
        await asyncio.Event().wait()

    script = say(calling(), ANSWER)
    runs = offer(result=slow, blocking=False)
    turn = await ended(await submit_turn(conversation))
    await until(lambda: _ran(runs, 1))
    call = await ToolCall.objects.aget(turn=turn)
    await sync_to_async(engine.cancel_call)(call)
    await until(lambda: ToolCall.objects.filter(state="cancelled").aexists())
    assert not await Turn.objects.filter(parent=turn).aexists()
    await ended(await submit_turn(conversation, "And?"))
    results = [i for i in script.requests[-1].items if CALL_ID_KEY in i]
    assert "cancelled" in results[0]["content"][0]["text"]


@pytest.mark.slow
@pytest.mark.smoke
async def test_a_timed_out_call_is_reported_as_such(conversation, say, offer, running):
    async def order(context):
        return Accepted()

    say(calling(), ANSWER)
    offer(result=order, blocking=False)
    turn = await ended(await submit_turn(conversation))
    await until(lambda: ToolCall.objects.exclude(accepted_at=None).aexists())
    past = timezone.now() - timedelta(seconds=1)
    await ToolCall.objects.aupdate(deadline_at=past)
    await until(lambda: ToolCall.objects.filter(state="timed_out").aexists())
    call = await ToolCall.objects.aget(turn=turn)
    with pytest.raises(background_store.TooLate):
        await sync_to_async(background_store.deliver)(call.pk, "late")


async def test_a_result_for_a_deleted_conversation_is_not_stored(
    conversation, say, offer, running
):
    async def order(context):
        return Accepted()

    say(calling(), ANSWER)
    offer(result=order, blocking=False)
    turn = await ended(await submit_turn(conversation))
    await until(lambda: ToolCall.objects.exclude(accepted_at=None).aexists())
    call = await ToolCall.objects.aget(turn=turn)
    await Conversation.objects.aupdate(deleted_at=timezone.now())
    concluded = await sync_to_async(background_store.deliver)(call.pk, "secret")
    assert concluded.new_turn is None
    await call.arefresh_from_db()
    assert call.state == ToolCall.State.CANCELLED
    assert "secret" not in str(call.output)


@pytest.mark.slow
@pytest.mark.smoke
async def test_a_result_whose_turn_was_never_opened_is_found_by_the_sweep(
    conversation, say, offer, running
):
    async def order(context):
        return Accepted()

    say(calling(), ANSWER)
    offer(result=order, blocking=False)
    turn = await ended(await submit_turn(conversation))
    await until(lambda: ToolCall.objects.exclude(accepted_at=None).aexists())
    await ToolCall.objects.aupdate(state="completed", output="42")
    await until(lambda: Turn.objects.filter(parent=turn).aexists())


# Long outputs, client-side tools


async def test_a_long_output_is_stored_whole_as_an_attachment(
    conversation, say, offer, running, settings, tmp_path
):
    settings.MEDIA_ROOT = tmp_path
    say(calling(), ANSWER)
    offer(result="x" * 60_000)
    turn = await ended(await submit_turn(conversation))
    (output,) = await outputs(turn)
    assert len(output) < 51_000
    attachment = await conversation.attachments.aget()
    assert attachment.size == 60_000
    assert attachment.file.read() == b"x" * 60_000
    attachment.file.close()


async def test_a_tool_of_the_clients_is_left_to_the_client(
    conversation, say, offer, running
):
    script = say(calling("locate", "{}"), ANSWER)
    offer()
    tool = {"type": "function", "name": "locate", "parameters": {"type": "object"}}
    opened = await sync_to_async(conversation.open_turn)(
        [user_message("Where am I?")], options={"tools": [tool], "server_tools": []}
    )
    turn = opened.turn
    engine.submit(turn.pk, conversation.pk)
    await ended(turn)
    assert [t["name"] for t in script.requests[0].tools] == ["locate"]
    assert await outputs(turn) == []
    output = {"type": "function_call_output", "call_id": "c1", "output": "Riga"}
    opened = await sync_to_async(conversation.open_turn)([output])
    later = opened.turn
    engine.submit(later.pk, conversation.pk)
    await ended(later)
    assert script.requests[-1].items[-1]["output"] == "Riga"


async def test_a_subscriber_after_a_restart_sees_what_the_turn_waits_for(
    conversation, say, offer, running
):
    say(calling(), ANSWER)
    offer(approval=Approval(policy="always"))
    question = await wait_for_question(turn := await submit_turn(conversation))
    await restart()
    assert (await wait_for_question(turn)).pk == question.pk
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.WAITING
    await decide(question, "accept")
    await ended(turn)


async def test_an_earlier_subscriber_receives_no_event_twice(
    conversation, say, offer, running
):
    say(calling(), ANSWER)
    offer(approval=Approval(policy="always"))
    turn = await submit_turn(conversation)
    added = []

    async def follow():
        async for batch in engine.subscribe(turn.pk):
            for entry in batch:
                if entry.type == "response.output_item.added":
                    added.append(entry.event["item"]["type"])

    following = asyncio.create_task(follow())
    question = await wait_for_question(turn)
    await decide(question, "accept")
    await following
    assert added == ["function_call", "function_call_output", "message"]
