"""A turn that is interrupted, over real rows in the embedded delivery: by a release, as
SIGTERM does it when its grace ends, and by a crash that leaves the last snapshot."""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import sync_to_async

from conversations import engine
from conversations.engine import claim_store, lease_store, turn_store
from conversations.engine.lease_store import Snapshot
from conversations.engine.progress_store import TurnProgress
from conversations.engine.turn_store import Ending
from conversations.models import Conversation, Item, ToolCall, Turn
from llm.models import LanguageModel, Provider
from llm.wire.deltas import (
    FinishDelta,
    ItemDelta,
    ProofDelta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)
from llm.wire.items import message, text_of, user_message
from llm.wire.response_builder import TERMINAL, ResponseBuilder
from tests.conversations.script import HANG
from tools.loop.resume import Resumption

pytestmark = pytest.mark.django_db(transaction=True)

VLLM = "http://localhost:8000/v1"
THOUGHT = [ReasoningDelta("r", "I had better"), ReasoningDelta("r", " count.")]
SEARCH = {"type": "web_search_call", "action": {"type": "search", "query": "x"}}
SEARCHED = [ItemDelta("s", SEARCH), ItemDelta("s", {**SEARCH}, done=True)]
COUNTED = [TextDelta("t", "1 2 3"), TextDelta("t", " 4 5 6"), FinishDelta("stop")]
SHAPES = {
    "in a thought": [THOUGHT[0]],
    "after a thought": THOUGHT,
    "after a thought, in text": [*THOUGHT, COUNTED[0]],
    "in text": [COUNTED[0]],
    "after a search": SEARCHED,
    "after a search, in text": [*SEARCHED, COUNTED[0]],
    "in a second message": [TextDelta("a", "Well."), COUNTED[0]],
    "in a call": [*THOUGHT, ToolCallDelta("c", "c1", "send", '{"to')],
    "before the end is on record": [*THOUGHT, *COUNTED[:2]],
}
OTHER = [
    ReasoningDelta("r", "Let me see."),
    ProofDelta("r", {"signed": "again"}),
    TextDelta("t", "One, two, three."),
    FinishDelta("stop"),
]


@pytest.fixture
async def stopping(settings):
    settings.DRAIN_GRACE = 0.0
    yield
    await engine.drain()


async def ended(turn):
    async for batch in engine.subscribe(turn.pk):
        if batch[-1].type in TERMINAL:
            break
    await turn.arefresh_from_db()
    return [
        row.payload async for row in Item.objects.filter(turn=turn, origin="output")
    ]


async def released(turn, script):
    """As on SIGTERM, once all expected events were published."""
    before = script.hanging
    await engine.start()
    engine.submit(turn.pk, turn.conversation_id)
    async with asyncio.timeout(30):
        while script.hanging == before:
            await asyncio.sleep(0)
    await engine.drain()


async def crashed(turn, items):
    """As after kill -9: the claim, and the snapshot of the heartbeat."""
    claim = await sync_to_async(claim_store.claim)(turn.pk)
    builder = ResponseBuilder(id=turn.pk, model="m")
    before = await Turn.objects.aget(pk=turn.pk)
    resumption = Resumption(builder, before.partial or ())
    builder.begin_call()
    resumption.feed(list(items))
    stored = [*builder.output, *builder.partial()]
    snapshot = Snapshot(stored, builder.sequence)
    await sync_to_async(lease_store.store_snapshot)(claim, snapshot)
    await sync_to_async(claim_store.release_all)()


async def start_turn(conversation):
    opened = await sync_to_async(conversation.open_turn)([user_message("Count")])
    return opened.turn


def read_in(items):
    """What a person reads of them."""
    parts = [
        part
        for item in items
        for part in [*item.get("summary", ()), *item.get("content", ())]
    ]
    return [part["text"] for part in parts]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("how", ["released", "crashed"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("again", ["the same", "other words"])
async def test_an_interrupted_model_call_is_made_again(
    conversation, say, stopping, shape, how, again, times
):
    items = SHAPES[shape]
    whole = OTHER if again == "other words" else _ended(items)
    script = say(*[[*items, HANG]] * (times if how == "released" else 0), whole)
    turn = await start_turn(conversation)
    for _ in range(times):
        await (released(turn, script) if how == "released" else crashed(turn, items))
    request_count = len(script.requests)
    await engine.start()
    async with asyncio.timeout(30):
        output = await ended(turn)
    assert len(script.requests) == request_count + 1
    assert turn.status == Turn.Status.COMPLETED
    answer = [item for item in output if not item.get("parley:interrupted")]
    builder = ResponseBuilder(id="r", model="m")
    builder.feed(list(whole))
    builder.complete()
    kinds = [item["type"] for item in builder.output]
    assert [item["type"] for item in answer] == kinds
    assert [text_of(item) for item in answer] == [text_of(i) for i in builder.output]
    # What was read is still there, and none of it twice.
    read = read_in(output)
    assert len(read) == len(set(read))
    builder = ResponseBuilder(id="r", model="m")
    builder.feed(list(items))
    for text in read_in([*builder.output, *builder.partial()]):
        assert any(each.startswith(text) for each in read)
    # The request is the question, and nothing that was cut short.
    assert [text_of(item) for item in script.requests[-1].items] == ["Count"]


def _ended(items):
    """The whole of the answer that begins so."""
    match items[-1]:
        case ToolCallDelta():
            return [*items[:-1], *COUNTED]
        case TextDelta():
            return [*(d for d in items if d not in COUNTED), *COUNTED]
        case delta if delta is THOUGHT[0]:
            return [*THOUGHT, *COUNTED]
    return [*items, *COUNTED]


async def test_a_paused_provider_is_called_again_after_a_crash(
    conversation, say, stopping
):
    """Hosted tools that ran and are on record are part of the request."""
    paused = [*SEARCHED, FinishDelta("pause")]
    script = say(paused, [TextDelta("t", "It"), HANG], COUNTED)
    turn = await start_turn(conversation)
    await released(turn, script)
    await engine.start()
    async with asyncio.timeout(30):
        output = await ended(turn)
    assert [i["type"] for i in script.requests[-1].items[1:]] == ["web_search_call"]
    assert [item["type"] for item in output] == [
        "web_search_call",
        "message",
        "message",
    ]
    assert [bool(item.get("parley:interrupted")) for item in output] == [
        False,
        True,
        False,
    ]


async def test_a_background_result_survives_two_interruptions(
    conversation, say, stopping
):
    """It is delivered once nothing is open, in the transaction that writes its item."""
    turn = await start_turn(conversation)
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "later",
        "arguments": "{}",
        "status": "completed",
    }
    output = {
        "type": "function_call_output",
        "id": "fco_1",
        "call_id": "c1",
        "output": "Accepted",
        "status": "completed",
    }

    def began():
        claim = claim_store.claim(turn.pk)
        items = [(call, None, 3), (output, None, 4)]
        turn_store.advance(
            claim,
            TurnProgress(
                items=items,
                first_position=1,
                last_sequence=4,
                executing=[call],
                background=["c1"],
                ended_output=1,
            ),
        )
        ToolCall.objects.update(state="completed", output="It is done.")
        cut = message("assistant", "Meanwhile")
        lease_store.store_snapshot(
            claim, Snapshot([{**cut, "status": "in_progress"}], 9)
        )
        claim_store.release_all()

    await sync_to_async(began)()
    script = say([TextDelta("t", "Mean"), HANG], COUNTED)
    await released(turn, script)
    assert not await ToolCall.objects.filter(delivered_in=turn).aexists()
    await engine.start()
    async with asyncio.timeout(30):
        output = await ended(turn)
    results = [item for item in output if item.get("parley:call_id")]
    assert len(results) == 1
    assert "It is done." in text_of(results[0])
    assert await ToolCall.objects.filter(delivered_in=turn).acount() == 1
    assert "It is done." in text_of(script.requests[-1].items[-1])
    assert text_of(output[-1]) == "1 2 3 4 5 6"


@pytest.mark.django_db
def test_half_an_answer_is_never_written_as_completed(conversation):
    turn = conversation.open_turn([user_message("Count")]).turn
    claim = claim_store.claim(turn.pk)
    builder = ResponseBuilder(id=turn.pk, model="m")
    builder.add(message("assistant", "1 2"))
    events = builder.complete()
    ending = Ending(
        status="completed",
        response=events[-1]["response"],
        error=None,
        last_sequence=3,
        called=False,
        progress=TurnProgress(items=[(builder.output[0], None, 2)], first_position=1),
    )
    with pytest.raises(turn_store.NotEnded):
        turn_store.finish(claim, ending)
    turn.refresh_from_db()
    assert (turn.status, turn.items.count()) == ("in_progress", 1)


async def test_text_shown_to_people_remains_where_nothing_follows_it(
    conversation, say, stopping
):
    """A user stopped the turn while no process ran it."""
    say(COUNTED)
    turn = await start_turn(conversation)
    await crashed(turn, SHAPES["after a thought, in text"])
    await Turn.objects.aupdate(cancel_requested=True)
    await engine.start()
    async with asyncio.timeout(30):
        output = await ended(turn)
    assert turn.status == Turn.Status.CANCELLED
    assert read_in(output) == ["I had better count.", "1 2 3"]
    assert output[-1]["status"] == "incomplete"


@pytest.mark.parametrize("how", ["released", "crashed"])
async def test_a_model_that_takes_a_prefill_goes_on_behind_it(
    conversation, say, stopping, how
):
    host = await Provider.objects.acreate(
        name="Ours", kind="vllm", base_url=VLLM, allow_private_network=True
    )
    model = await LanguageModel.objects.acreate(provider=host, name="qwen3")
    await Conversation.objects.aupdate(language_model=model)
    await conversation.arefresh_from_db()
    begun = TextDelta("t", "This is the beginning of an answer that is long enough,")
    rest = [TextDelta("t", " and"), TextDelta("t", " its end."), FinishDelta("stop")]
    script = say(*[[begun, HANG]] * (how == "released"), rest)
    turn = await start_turn(conversation)
    await (released(turn, script) if how == "released" else crashed(turn, [begun]))
    await engine.start()
    async with asyncio.timeout(30):
        output = await ended(turn)
    assert turn.error is None
    assert script.requests[-1].prefill == begun.text
    assert [text_of(item) for item in output] == [f"{begun.text} and its end."]
    assert turn.status == Turn.Status.COMPLETED
