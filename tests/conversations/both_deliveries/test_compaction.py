"""Long conversations, over real rows and a scripted provider, in both deliveries."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from asgiref.sync import sync_to_async
from django.db import transaction

from conversations import engine
from conversations.engine import claim_store, turn_store
from conversations.engine.claim_store import Claim
from conversations.engine.loading import turn_loader
from conversations.engine.loading.context_use import context_use
from conversations.models import Item, Turn
from conversations.requests.item_changes import ItemChangeSerializer, find_item
from llm.errors import ContextTooLarge, ProviderDown
from llm.models import ModelCall
from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.deltas import (
    FinishDelta,
    ProofDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageDelta,
)
from llm.wire.items import text_of, user_message
from tests.conversations.both_deliveries.test_engine import (
    answer,
    follow,
    submit_turn,
)
from tests.conversations.script import HANG

WINDOW = 6000  # tokens
LONG = "All about tea. " * 270  # about 1000 tokens
SUMMARY = [TextDelta(0, "They spoke of tea."), UsageDelta(700, 9), FinishDelta("stop")]
DONE = [TextDelta(0, "Done."), FinishDelta("stop")]


@pytest.fixture
async def chat(conversation, say, running):
    """A conversation that nearly fills its model's window."""
    conversation.language_model.context_window = WINDOW
    await conversation.language_model.asave()
    say(DONE)
    for number in range(4):
        await answer(conversation, text=f"{number}: {LONG}")
    return conversation


async def answer_watched(conversation, text, may_end):
    """As `answer`, of a model that waits for `may_end` before it ends: it is set once
    somebody has seen the turn. Rows of a turn that has ended have no progress."""
    turn = await submit_turn(conversation, text)
    engine.submit(turn.pk, conversation.pk)
    entries = []
    async for batch in engine.subscribe(turn.pk):
        entries += batch
        may_end.set()
    await turn.arefresh_from_db()
    return turn, entries


def texts(request):
    return [text_of(item).partition(":")[0] for item in request.items]


async def compactions(conversation):
    rows = Item.objects.filter(turn__conversation=conversation, type="compaction")
    return [row.payload async for row in rows.order_by("id")]


async def change(conversation, item, **changes):
    def save():
        row = find_item(conversation, item["id"])
        serializer = ItemChangeSerializer(row, data=changes)
        serializer.is_valid(raise_exception=True)
        serializer.save()

    await sync_to_async(save)()


async def test_a_long_conversation_is_summarised_once_and_goes_on(chat, say):
    may_end = asyncio.Event()
    script = say(SUMMARY, [may_end, *DONE])
    turn, entries = await answer_watched(chat, "4: " + LONG, may_end)
    asked, sent = script.requests
    prompt = text_of(asked.items[0])
    assert "User: 0: All about tea." in prompt
    assert "Assistant: Done." in prompt
    assert (asked.tools, asked.text) == ((), None)
    summary, *rest = sent.items
    assert text_of(summary).endswith("They spoke of tea.")
    assert texts(sent)[-1] == "4"
    assert "0" not in texts(sent)
    [item] = await compactions(chat)
    assert item["parley:messages"] == 8 - (len(rest) - 1)
    kinds = [entry.type for entry in entries]
    assert kinds.index("parley:compaction.started") < kinds.index(
        "response.output_item.done"
    )
    calls = [call async for call in ModelCall.objects.filter(turn_id=turn.pk)]
    assert sorted(call.purpose for call in calls) == ["answer", "summary"]
    assert {call.user_id for call in calls} == {chat.owner_id}
    assert turn.usage["total_tokens"] == 709  # the summary is paid for too
    # The next turn makes none, and its prompt begins with this one: a cached prefix.
    script = say(DONE)
    await answer(chat, text="Thanks.")
    [again] = script.requests
    assert list(again.items)[: len(sent.items)] == list(sent.items)
    # Another attempt at the same message follows the same turns, so it has it too.
    script = say(DONE)
    await answer(chat, text="4 again", parent_id=turn.parent_id)
    assert list(script.requests[0].items)[:-1] == list(sent.items)[:-1]
    assert len(await compactions(chat)) == 1
    use = await sync_to_async(context_use)(chat)
    assert (use.context_window, use.compacts_above) == (WINDOW, WINDOW * 3 // 4)
    assert use.compaction == item
    assert 0 < use.tokens < use.compacts_above


def bodies(turn_id):
    """The next prompt of this turn, as two hosts would get it."""
    claim = Claim(turn_id, Turn.objects.get(pk=turn_id).conversation_id, epoch=2)
    request = turn_loader.load(claim).prepare(())
    codecs = OpenAIChatCodec(), AnthropicCodec()
    return [orjson.dumps(codec.encode(request)) for codec in codecs]


@transaction.atomic
def opened_with_bodies(chat, text):
    """In one transaction: a worker runs the turn as soon as its row is there."""
    turn = chat.open_turn([user_message(text)]).turn
    return turn, bodies(turn.pk)


async def test_undo_sends_the_messages_again_byte_for_byte(chat, say):
    script = say(SUMMARY, DONE)
    question, before = await sync_to_async(opened_with_bodies)(chat, "4: " + LONG)
    engine.submit(question.pk, chat.pk)
    await follow(question)
    assert len(script.requests) == 2
    [item] = await compactions(chat)
    compacted = await sync_to_async(bodies)(question.pk)
    assert compacted != before
    await change(chat, item, undone=True)
    assert await sync_to_async(bodies)(question.pk) == before
    # A person has decided: no other is made until the model refuses the conversation.
    script = say(DONE)
    await answer(chat, text="5")
    assert len(script.requests) == 1
    assert texts(script.requests[0])[0] == "0"
    await change(chat, item, undone=False)
    assert await sync_to_async(bodies)(question.pk) == compacted
    await change(chat, item, summary="Nothing but tea.")
    script = say(DONE)
    await answer(chat, text="6")
    assert text_of(script.requests[0].items[0]).endswith("Nothing but tea.")


async def test_a_pinned_message_stays_beside_the_summary(chat, say):
    first = await Item.objects.filter(turn__conversation=chat).order_by("id").afirst()
    await change(chat, first.payload, pinned=True)
    script = say(SUMMARY, DONE)
    await answer(chat, text="4: " + LONG)
    assert texts(script.requests[1])[1:2] == ["0"]
    [_item] = await compactions(chat)
    await change(chat, first.payload, pinned=False)
    script = say(DONE)
    await answer(chat, text="5")
    assert "0" not in texts(script.requests[0])


@pytest.mark.parametrize("window", [None, 1_000_000])
async def test_a_refused_conversation_is_summarised_and_sent_again_once(
    chat,
    say,
    window,
):
    """Whether the window is unknown, or is not what the host really has."""
    chat.language_model.context_window = window
    await chat.language_model.asave()
    script = say([ContextTooLarge()], SUMMARY, DONE)
    turn, _ = await answer(chat, text="4")
    assert turn.status == Turn.Status.COMPLETED
    assert texts(script.requests[0]) != texts(script.requests[2])
    assert len(await compactions(chat)) == 1
    script = say([ContextTooLarge()], SUMMARY, [ContextTooLarge()], DONE)
    turn, _ = await answer(chat, text="5: " + LONG)
    assert (turn.status, turn.error["code"]) == ("failed", ContextTooLarge.code)
    assert len(script.requests) <= 3


@pytest.mark.parametrize("known", [True, False])
async def test_a_summary_too_long_for_a_smaller_model_is_summarised_again(
    chat,
    say,
    known,
):
    """Edited while the window was large; then a model with a small one is chosen. The
    other model's window is known, or found out by its refusal."""
    say(SUMMARY, DONE)
    await answer(chat, text="4: " + LONG)
    [item] = await compactions(chat)
    model = chat.language_model
    model.context_window = 1_000_000
    await model.asave()
    await change(chat, item, summary="A long tale of tea. " * 2000)
    model.context_window = WINDOW if known else None
    await model.asave()
    refused = [] if known else [[ContextTooLarge()]]
    script = say(*refused, *[SUMMARY] * 8, DONE)
    turn, _ = await answer(chat, text="Thanks.")
    assert turn.status == Turn.Status.COMPLETED, turn.error
    *_, sent = script.requests
    assert text_of(sent.items[0]).endswith("They spoke of tea.")
    newest = (await compactions(chat))[-1]
    assert newest["parley:messages"] >= item["parley:messages"]
    script = say(DONE)
    turn, _ = await answer(chat, text="And?")
    assert (turn.status, len(script.requests)) == ("completed", 1)


async def test_a_question_that_is_too_long_alone_fails_as_it_did(
    conversation,
    say,
    running,
):
    script = say([ContextTooLarge()], DONE)
    turn, _ = await answer(conversation, text=LONG)
    assert (turn.status, turn.error["code"]) == ("failed", ContextTooLarge.code)
    assert len(script.requests) == 1


@pytest.mark.parametrize("failing", [[ProviderDown()], [FinishDelta("stop")]])
async def test_without_a_summary_the_messages_are_sent_while_they_fit(
    chat,
    say,
    failing,
    monkeypatch,
):
    async def at_once(delay):
        pass

    chat.language_model.options = {"retry": {"attempts": 1}}
    await chat.language_model.asave()
    may_end = asyncio.Event()
    script = say(failing, [may_end, *DONE])
    turn, entries = await answer_watched(chat, "4: " + LONG, may_end)
    assert turn.status == Turn.Status.COMPLETED
    assert texts(script.requests[1])[0] == "0"
    assert "parley:compaction.failed" in [entry.type for entry in entries]
    assert await compactions(chat) == []


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_half_a_summary_replaces_no_conversation(chat, say, reason):
    cut = [TextDelta(0, "They spoke of"), FinishDelta(reason)]
    script = say(cut, cut, DONE)
    turn, _ = await answer(chat, text="4: " + LONG)
    assert turn.status == Turn.Status.COMPLETED
    assert script.requests[1].reasoning == {"effort": "low"}
    assert texts(script.requests[2])[0] == "0"
    assert await compactions(chat) == []


async def test_a_summary_is_written_again_with_less_thought_and_without_it(chat, say):
    cut = [TextDelta(0, "They spoke of"), FinishDelta("length")]
    thought = [TextDelta(0, "<think>So many words.</think>\n"), *SUMMARY]
    say(cut, thought, DONE)
    turn, _ = await answer(chat, text="4: " + LONG)
    assert turn.status == Turn.Status.COMPLETED
    [item] = await compactions(chat)
    assert item["summary"] == [{"type": "summary_text", "text": "They spoke of tea."}]


async def test_a_summary_fits_the_limit_that_staff_have_set(chat, say):
    chat.language_model.max_output_tokens = 300
    chat.language_model.context_window = WINDOW + 300
    chat.language_model.options = {"reasoning": {"effort": "none"}}
    await chat.language_model.asave()
    cut = [TextDelta(0, "They spoke of tea. Then of"), FinishDelta("length")]
    script = say(cut, cut, DONE)
    turn, _ = await answer(chat, text="4: " + LONG)
    assert turn.status == Turn.Status.COMPLETED
    first, second, _ = script.requests
    assert "at most 120 words" in first.instructions
    assert "at most 60 words" in second.instructions
    assert second.reasoning == {"effort": "none"}
    [item] = await compactions(chat)
    assert item["summary"][0]["text"] == (
        "They spoke of tea. [The summary is cut off here.]"
    )


async def test_stop_ends_a_turn_while_it_summarises(chat, say):
    script = say([TextDelta(0, "They"), HANG], DONE)
    turn = await submit_turn(chat, "4: " + LONG)
    engine.submit(turn.pk, chat.pk)
    async for batch in engine.subscribe(turn.pk):
        if any(entry.type == "parley:compaction.started" for entry in batch):
            await _until(lambda: script.hanging)
            await sync_to_async(engine.cancel)(turn)
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.CANCELLED
    assert await compactions(chat) == []
    call = await ModelCall.objects.aget(turn_id=turn.pk)
    assert (call.purpose, call.status) == ("summary", ModelCall.Status.CANCELLED)


async def _until(happened):
    while not happened():
        await asyncio.sleep(0)


async def test_a_thinking_model_is_summarised_between_its_rounds_of_calls(
    conversation,
    say,
    counter,
    running,
    settings,
):
    """A turn of many parallel calls fills the window alone; its question stays."""
    conversation.language_model.context_window = 3000
    await conversation.language_model.asave()
    runs = counter("safe")

    def round_(n):
        thought = [
            ReasoningDelta(0, "Let me see."),
            ProofDelta(0, {"type": "thinking", "signature": f"s{n}"}),
        ]
        calls = [
            ToolCallDelta(
                k, f"c{k}", "count", '{"note": "%s"}' % (LONG[:1500] + str(n))
            )
            for k in (1, 2)
        ]
        return [*thought, *calls, FinishDelta("tool_calls")]

    script = say(round_(0), round_(1), round_(2), SUMMARY, DONE)
    turn, _ = await answer(conversation, text="Count, please")
    assert (turn.status, len(runs)) == ("completed", 6)
    [_item] = await compactions(conversation)
    *_, asked, sent = script.requests
    assert "Assistant calls count" in text_of(asked.items[0])
    kinds = [i["type"] for i in sent.items]
    assert kinds[:2] == ["message", "message"]
    assert text_of(sent.items[1]) == "Count, please"
    rest = kinds[2:]
    assert rest
    assert rest == [
        *("reasoning", "function_call", "function_call"),
        *("function_call_output", "function_call_output"),
    ] * (len(rest) // 5)
    script = say(DONE)
    await answer(conversation, text="Thanks")
    prompt = list(script.requests[0].items)
    assert [text_of(i) for i in prompt[:2]] == [text_of(i) for i in sent.items[:2]]
    assert [i["type"] for i in prompt[2 : 2 + len(rest)]] == rest


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_run_lost_around_the_write_of_a_summary_doubles_nothing(
    chat,
    say,
    monkeypatch,
    moment,
):
    """As a killed process leaves its rows: another run claims the turn."""
    write, lost = turn_store.advance, []
    is_lost, loop = asyncio.Event(), asyncio.get_running_loop()

    def lose(claim, progress):
        is_summary = any(i["type"] == "compaction" for i, *_ in progress.items)
        if not is_summary or lost:
            return write(claim, progress)
        lost.append(claim)
        if moment == "after":
            write(claim, progress)
        taken = claim_store.Claim(claim.turn_id, claim.conversation_id, claim.epoch + 1)
        Turn.objects.filter(pk=claim.turn_id).update(
            epoch=taken.epoch, lease_until=None
        )
        loop.call_soon_threadsafe(is_lost.set)
        raise claim_store.StaleEpoch

    monkeypatch.setattr(turn_store, "advance", lose)
    say(SUMMARY, DONE)
    turn = await submit_turn(chat, "4: " + LONG)
    engine.submit(turn.pk, chat.pk)
    await is_lost.wait()
    await Turn.objects.filter(pk=turn.pk).aupdate(
        status=Turn.Status.QUEUED, lease_until=None
    )
    engine.submit(turn.pk, chat.pk)
    await follow(turn)
    await turn.arefresh_from_db()
    assert turn.status == Turn.Status.COMPLETED
    assert len(await compactions(chat)) == 1
