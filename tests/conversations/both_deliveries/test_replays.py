"""Turns that are run again, over a scripted host, in both deliveries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest
import respx
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.utils import timezone

from conversations import engine
from conversations.engine.maintenance.row_erasure import erase_turns
from conversations.engine.process import leased_batches
from conversations.engine.replays import replaying
from conversations.models import (
    AccessToken,
    Conversation,
    Item,
    Replay,
    ReplayedTurn,
    ToolCall,
    Turn,
)
from conversations.requests.item_changes import ItemChangeSerializer
from conversations.staff.replay_report import progress_of
from llm.errors import BadRequest
from llm.http import client
from llm.http.recording import Recording
from llm.models import ApiKey, LanguageModel, ModelCall, ModelExchange, Provider
from llm.wire.deltas import TextDelta
from tests.conversations.both_deliveries.test_engine import answer
from tests.conversations.scene import a_user
from tests.conversations.script import HANG, Script, SilentHost
from tests.llm.chat import DONE, call, chunk, frames
from tools.models import PermittedTools
from tools.registry import Context, RuntimeTool

HOST = "https://models.example/v1"
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8"
    "BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
LONG = "All about tea. " * 270  # about 1000 tokens


class ToyHost:
    """Answers as the last message wants: "call" with two calls, then with text."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.ending = "."

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(request.content)
        body = json.loads(request.content)
        last = body["messages"][-1]
        wants = "call" in str(last["content"]) and last["role"] == "user"
        wants = wants and "tools" in body  # and no summary is wanted
        size = len(request.content) // 4  # some tokens
        answer = self._calls() if wants else self._text(str(last["content"]), size)
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, content=answer)

    def _text(self, said: str, size: int) -> bytes:
        usage = {"prompt_tokens": size, "completion_tokens": 100}
        text = f"You said {len(said)} characters{self.ending}"
        end = chunk({}, "stop", usage=usage)
        return frames(chunk({"content": text}), end, DONE)

    def _calls(self) -> bytes:
        return frames(
            chunk(call(0, "call_a", "count", '{"by": 1}')),
            chunk(call(1, "call_b", "change", "{}")),
            chunk({}, "tool_calls", usage={"prompt_tokens": 9, "completion_tokens": 9}),
            DONE,
        )


@pytest.fixture
def host():
    host = ToyHost()
    with respx.mock(using="parley", assert_all_called=False) as router:
        router.post(f"{HOST}/chat/completions").mock(side_effect=host)
        yield host


@pytest.fixture
def tools(monkeypatch):
    """`count` changes nothing, `change` does; returns the names of those that ran."""
    ran: list[str] = []

    def tool(name: str, replay: Any) -> RuntimeTool:
        async def run(context, arguments):
            ran.append(name)
            return {"times": len(ran), "name": name}

        return RuntimeTool(
            name=name,
            description="",
            parameters={"type": "object"},
            call=run,
            replay=replay,
        )

    offered = {"count": tool("count", "safe"), "change": tool("change", "once")}
    monkeypatch.setattr(
        "conversations.engine.loading.available_tools.permitted_tools",
        lambda turn: PermittedTools(offered),
    )
    return ran


@pytest.fixture
def chat(transactional_db) -> Conversation:
    provider = Provider.objects.create(
        name="Host", kind="openai_compatible", base_url=HOST, keeps_exchanges=True
    )
    ApiKey.objects.create(provider=provider, secret="sk-of-these-tests")
    prices = {"input": 1, "output": 1}
    for name in ("small", "other"):
        LanguageModel.objects.create(
            provider=provider,
            name=name,
            is_default=name == "small",
            prices=prices,
            capabilities={"images": True},
        )
    return Conversation.objects.create(owner=a_user("ada"))


@pytest.fixture
def answer_by(monkeypatch):
    return lambda script: monkeypatch.setattr(client, "stream", script)


async def replay(*turns: Turn, **fields: Any) -> Replay:
    """A replay that has come to its end."""
    change = await Replay.objects.acreate(name="try", **fields)
    for turn in turns:
        await change.turns.acreate(turn=turn)
    await run(change)
    return change


async def run(change: Replay) -> None:
    replays = engine.require_engine().replays
    while True:
        await change.arefresh_from_db()
        if change.state not in Replay.UNFINISHED:
            return
        await replays.run_due()
        await asyncio.sleep(0)


async def result(change: Replay) -> ReplayedTurn:
    return await change.turns.aget()


async def some_turns(chat: Conversation) -> list[Turn]:
    picture = {"type": "input_image", "image_url": PIXEL, "detail": "auto"}
    content = [{"type": "input_text", "text": "Look"}, picture]
    with_file = {"type": "message", "role": "user", "content": content}
    turns = [
        (await answer(chat, text=text))[0] for text in ("Hi", "please call", "And now?")
    ]
    opened = await sync_to_async(chat.open_turn)([with_file])
    engine.submit(opened.turn.pk, chat.pk)
    await engine.response_of(opened.turn.pk)
    turns.append(opened.turn)
    await LanguageModel.objects.aupdate(context_window=6000)
    turns += [(await answer(chat, text=f"{n}: {LONG}"))[0] for n in range(6)]
    assert await Item.objects.filter(type="compaction").aexists()
    await LanguageModel.objects.aupdate(context_window=6000)
    turns += [(await answer(chat, text=text))[0] for text in ("again, call", "End")]
    for turn in turns:
        await turn.arefresh_from_db()
        assert turn.status == Turn.Status.COMPLETED
    return turns


async def bodies_of(turn: Turn) -> list[str]:
    calls = ModelCall.objects.filter(turn_id=turn.pk, purpose="answer").order_by("pk")
    return [
        c.exchange.read()["request"] async for c in calls.select_related("exchange")
    ]


@pytest.mark.slow
@pytest.mark.smoke
async def test_the_same_model_gets_the_same_bytes(chat, host, tools, running):
    turns = await some_turns(chat)
    tools.clear()
    for turn in reversed(turns):
        host.bodies.clear()
        change = await replay(turn)
        assert [b.decode() for b in host.bodies] == await bodies_of(turn), turn
        assert (await result(change)).is_same_request is True
    assert tools == []


async def test_a_cost_that_is_unknown_is_no_cost_of_nothing(chat, host, running):
    turn, _ = await answer(chat)
    other = await LanguageModel.objects.aget(name="other")
    await LanguageModel.objects.filter(pk=other.pk).aupdate(prices={})
    change = await replay(turn, language_model=other)
    found = await result(change)
    assert (found.state, found.model_calls, found.cost) == ("completed", 1, None)
    progress = await sync_to_async(progress_of)(change)
    assert progress.cost is None


async def test_nothing_enters_the_conversation(chat, host, tools, running):
    turn, _ = await answer(chat, text="please call")

    async def everything() -> list[Any]:
        tables = (Turn, Item, ToolCall, Conversation)
        rows = [
            [row async for row in t.objects.order_by("pk").values()] for t in tables
        ]
        calls = ModelCall.objects.filter(turn_id=turn.pk).values()
        return [*rows, [row async for row in calls]]

    before = await everything()
    other = await LanguageModel.objects.aget(name="other")
    change = await replay(turn, language_model=other, instructions="Be brief.")
    assert await everything() == before
    found = await result(change)
    assert found.state == "completed"
    assert found.is_same_request is False
    assert (found.model_calls, found.output_tokens) == (2, 109)
    assert found.input_tokens is not None
    assert found.cost == Decimal(found.input_tokens + 109) / 1_000_000
    assert json.loads(host.bodies[-1])["model"] == "other"
    assert "Be brief." in host.bodies[-1].decode()
    outputs = [i["output"] for i in found.items if i["type"] == "function_call_output"]
    kept = Item.objects.filter(turn=turn, type="function_call_output")
    assert outputs == [row.payload["output"] async for row in kept.order_by("position")]


async def test_the_turns_erasure_erases_what_its_replay_sent(chat, host, running):
    turn, _ = await answer(chat, text="please call")
    change = await replay(turn)
    calls = ModelCall.objects.filter(purpose="test")
    assert await calls.filter(exchange__isnull=False).aexists()
    await calls.aupdate(error_detail="please")
    await sync_to_async(erase_turns)([turn.pk])
    assert not await calls.filter(exchange__isnull=False).aexists()
    assert not await calls.exclude(error_detail="").aexists()
    assert await calls.acount() == 2  # the figures stay
    assert not await change.turns.aexists()


@pytest.mark.parametrize(
    ("fields", "ran"),
    [
        ({}, []),
        ({"is_live": True}, ["count"]),
        ({"is_live": True, "live_tools": ["change"]}, ["count", "change"]),
        ({"live_tools": ["change"]}, []),
    ],
)
async def test_only_what_was_asked_for_runs(chat, host, tools, running, fields, ran):
    turn, _ = await answer(chat, text="please call")
    tools.clear()
    change = await replay(turn, **fields)
    assert sorted(tools) == sorted(ran)
    assert sorted((await result(change)).tools_run) == sorted(ran)


async def test_a_tool_that_runs_has_the_limits_of_the_turns_token(
    chat, host, running, monkeypatch
):
    contexts: list[Context] = []

    async def run(context, arguments):
        contexts.append(context)
        return "Hello."

    count = RuntimeTool(
        name="count",
        description="",
        parameters={"type": "object"},
        call=run,
        replay="safe",
    )
    monkeypatch.setattr(
        "conversations.engine.loading.available_tools.permitted_tools",
        lambda turn: PermittedTools({"count": count}),
    )
    turn, _ = await answer(chat, text="please call")
    user = await sync_to_async(lambda: chat.owner)()
    token, _ = await sync_to_async(AccessToken.issue)(user, "program")
    await Turn.objects.aupdate(access_token=token)
    await replay(turn, is_live=True)
    assert [context.access_token_id for context in contexts] == [None, token.pk]


async def test_a_call_that_was_not_made_before_has_no_result(
    chat, host, tools, running
):
    turn, _ = await answer(chat, text="please call")
    await Item.objects.filter(turn=turn, payload__call_id="call_a").adelete()
    change = await replay(turn)
    found = await result(change)
    texts = [i["output"] for i in found.items if i["type"] == "function_call_output"]
    assert "no result is recorded" in texts[0]


async def test_a_set_ends_with_its_budget_and_when_it_is_cancelled(
    chat, host, tools, running
):
    turns = [(await answer(chat, text=f"Hi {n}"))[0] for n in range(4)]
    change = await replay(*turns, budget=Decimal("0.0003"))
    assert change.state == Replay.State.BUDGET
    states = [row.state async for row in change.turns.all()]
    assert states == ["completed", "completed", "pending", "pending"]
    cancelled = await replay(*turns, cancel_requested=True)
    assert cancelled.state == Replay.State.CANCELLED
    assert not await cancelled.turns.exclude(state="pending").aexists()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0)


@pytest.mark.parametrize("size", [1, 2])
async def test_cancelling_interrupts_the_running_call_and_counts_its_cost(
    chat, answer_by, running, size
):
    answer_by(Script([TextDelta(0, "Hello.")]))
    turns = [(await answer(chat, text=f"Hi {n}"))[0] for n in range(size)]
    host = SilentHost([TextDelta(0, "Half an ans"), HANG])
    answer_by(host)
    change = await Replay.objects.acreate(name="try")
    for turn in turns:
        await change.turns.acreate(turn=turn)
    replays = engine.require_engine().replays
    await replays.run_due()
    await until(lambda: host.hanging == 1)
    await Replay.objects.aupdate(cancel_requested=True)
    await until(lambda: host.closed == 1)
    await run(change)
    assert change.state == Replay.State.CANCELLED
    assert change.finished_at is not None
    first, *others = [row async for row in change.turns.order_by("pk")]
    assert first.state == "cancelled"
    assert first.items[0]["content"][0]["text"] == "Half an ans"
    assert (first.model_calls, first.cost) == (1, Decimal("0.00002"))
    assert [row.state for row in others] == ["pending"] * (size - 1)
    call = await ModelCall.objects.aget(turn_id="")
    assert (call.status, call.cost) == ("cancelled", Decimal("0.00002"))
    assert len(host.requests) == 1


async def test_a_turn_that_is_erased_meanwhile_leaves_the_others(
    chat, answer_by, running
):
    answer_by(Script([TextDelta(0, "Hello.")]))
    turns = [(await answer(chat, text=f"Hi {n}"))[0] for n in range(2)]
    host = SilentHost([HANG])
    answer_by(host)
    change = await Replay.objects.acreate(name="try")
    for turn in turns:
        await change.turns.acreate(turn=turn)
    await engine.require_engine().replays.run_due()
    await until(lambda: host.hanging == 1)
    await change.turns.filter(turn=turns[0]).adelete()
    await Replay.objects.aupdate(cancel_requested=True)
    await run(change)
    assert change.state == Replay.State.CANCELLED
    assert (await result(change)).turn_id == turns[1].pk


async def test_a_correction_meanwhile_leaves_figures_alone(chat, answer_by, running):
    answer_by(Script([TextDelta(0, "Hello.")]))
    turn = (await answer(chat, text="It is swordfish"))[0]
    host = SilentHost([TextDelta(0, "Swordfish"), HANG])
    answer_by(host)
    change = await Replay.objects.acreate(name="try")
    await change.turns.acreate(turn=turn)
    await engine.require_engine().replays.run_due()
    await until(lambda: host.hanging == 1)
    item = await turn.items.select_related("turn").aget(position=0)
    await sync_to_async(item.correct)({**item.payload, "content": []})
    await Replay.objects.aupdate(cancel_requested=True)
    await run(change)
    row = await result(change)
    assert (row.items, row.model_calls) == ([], 1)
    assert row.error.startswith("Erased")
    call = await ModelCall.objects.aget(replayed_turn_id=turn.pk)
    assert call.error_detail == ""
    assert not await ModelExchange.objects.filter(call=call).aexists()


async def test_a_pinned_message_takes_no_answer_from_a_replay(chat, answer_by, running):
    answer_by(Script([TextDelta(0, "Hello.")]))
    turn = (await answer(chat, text="It is swordfish"))[0]
    host = SilentHost([TextDelta(0, "Swordfish"), HANG])
    answer_by(host)
    change = await Replay.objects.acreate(name="try")
    await change.turns.acreate(turn=turn)
    await engine.require_engine().replays.run_due()
    await until(lambda: host.hanging == 1)
    item = await turn.items.select_related("turn__conversation").aget(position=0)
    serializer = ItemChangeSerializer(item, data={"pinned": True}, partial=True)
    await sync_to_async(serializer.is_valid)(raise_exception=True)
    await sync_to_async(serializer.save)()
    await Replay.objects.aupdate(cancel_requested=True)
    await run(change)
    assert (await result(change)).items[0]["content"][0]["text"] == "Swordfish"


def begin_row(turn: Turn) -> ReplayedTurn:
    """A row of a new replay that has got its answer."""
    change = Replay.objects.create(name="try")
    change.turns.create(turn=turn)
    lease = replaying.store.claim(change.pk)
    row = replaying.store.next_row(change.pk, lease)
    row.corrections_seen = Conversation.objects.get().corrections
    row.items, row.state = [{"type": "message", "content": "Swordfish"}], "completed"
    return row


def correct_input(turn: Turn) -> None:
    item = turn.items.select_related("turn").get(position=0)
    item.correct({**item.payload, "content": []})


@pytest.mark.parametrize("is_corrected", [False, True])
async def test_requests_that_may_have_corrected_text_are_not_stored(
    chat, host, running, is_corrected
):
    turn = (await answer(chat, text="It is swordfish"))[0]
    row = await sync_to_async(begin_row)(turn)
    made = await ModelCall.objects.aget()
    made.pk, made.write_id = None, None
    made.turn_id, made.replayed_turn_id = "", turn.pk
    made.error_detail = "Swordfish?"
    made.recording = Recording(
        method="POST",
        url=httpx.URL(HOST),
        headers=httpx.Headers(),
        secrets=(),
        limit=99,
        body=b"swordfish",
        body_size=9,
    )
    if is_corrected:
        await sync_to_async(correct_input)(turn)
    await sync_to_async(replaying.store.record)(row, [made])
    call = await ModelCall.objects.aget(replayed_turn_id=turn.pk)
    is_stored = await ModelExchange.objects.filter(call=call).aexists()
    assert (is_stored, bool(call.error_detail)) == (not is_corrected, not is_corrected)


async def test_a_correction_just_before_the_end_leaves_no_answer(chat, host, running):
    turn = (await answer(chat, text="It is swordfish"))[0]
    row = await sync_to_async(begin_row)(turn)
    await sync_to_async(replaying.store.record)(row, [])
    await sync_to_async(correct_input)(turn)
    await sync_to_async(replaying.store.end_row)(row)
    await row.arefresh_from_db()
    assert (row.state, row.items) == ("completed", [])
    assert row.error.startswith("Erased")


async def test_a_row_waits_for_a_correction_that_is_being_made(chat, host, running):
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has one writer")
    turn = (await answer(chat, text="It is swordfish"))[0]
    row = await sync_to_async(begin_row)(turn)
    await sync_to_async(_end_while_corrected)(turn, row)
    await row.arefresh_from_db()
    assert row.items == []


def _end_while_corrected(turn: Turn, row: ReplayedTurn) -> None:
    def end() -> None:
        try:
            replaying.store.end_row(row)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as threads:
        with transaction.atomic():
            correct_input(turn)
            ending = threads.submit(end)
            while not (ending.done() or _waits()):
                pass
            assert not ending.done()
        ending.result()


def _waits() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return cursor.fetchone()[0] > 0


async def test_a_drain_gives_an_interrupted_turn_back(chat, answer_by, running):
    answer_by(Script([TextDelta(0, "Hello.")]))
    turn, _ = await answer(chat)
    host = SilentHost([TextDelta(0, "Half an ans"), HANG])
    answer_by(host)
    change = await Replay.objects.acreate(name="try")
    earlier = {"model_calls": 2, "input_tokens": 50, "output_tokens": 70, "cost": 1}
    await change.turns.acreate(turn=turn, **earlier)
    await engine.require_engine().replays.run_due()
    await until(lambda: host.hanging == 1)
    await engine.drain()
    await change.arefresh_from_db()
    assert (change.state, change.lease_until) == ("running", None)
    found = await result(change)
    assert (found.state, found.model_calls) == ("pending", 3)
    call = await ModelCall.objects.aget(turn_id="")
    assert call.purpose == "test"
    assert found.input_tokens == 50 + (call.input_tokens or 0)
    assert found.output_tokens == 70 + (call.output_tokens or 0)
    assert found.cost == 1 + call.cost


async def test_without_a_price_a_budget_calls_nothing(chat, host, tools, running):
    turn, _ = await answer(chat)
    await LanguageModel.objects.aupdate(prices={})
    host.bodies.clear()
    change = await replay(turn, budget=Decimal(1))
    assert "price" in (await result(change)).error
    assert host.bodies == []


async def test_a_turn_that_fails_does_not_end_the_set(chat, host, tools, running):
    turns = [(await answer(chat, text=f"Hi {n}"))[0] for n in range(2)]
    await Turn.objects.filter(pk=turns[0].pk).aupdate(status=Turn.Status.RUNNING)
    change = await replay(*turns)
    await Turn.objects.filter(pk=turns[0].pk).aupdate(status=Turn.Status.COMPLETED)
    rows = [(row.state, row.error) async for row in change.turns.all()]
    assert [state for state, _ in rows] == ["failed", "completed"]
    assert rows[0][1].startswith("E_NOT_REPLAYABLE")
    await Provider.objects.aupdate(enabled=False)
    change = await replay(turns[1])
    assert (await result(change)).state == "failed"


async def test_an_error_of_any_length_ends_its_turn_only(
    chat, host, tools, running, monkeypatch
):
    async def refuse(self: Any, row: ReplayedTurn) -> None:
        raise BadRequest("no " * 1_000)

    monkeypatch.setattr(replaying.Replays, "work_on", refuse)
    turns = [(await answer(chat, text=f"Hi {n}"))[0] for n in range(2)]
    change = await replay(*turns)
    rows = [(row.state, len(row.error)) async for row in change.turns.all()]
    assert rows == [("failed", 500)] * 2
    assert change.state == Replay.State.DONE


async def test_a_replay_whose_process_is_lost_goes_on_elsewhere(
    chat, host, tools, running
):
    turns = [(await answer(chat, text=f"Hi {n}"))[0] for n in range(2)]
    change = await Replay.objects.acreate(name="try", state=Replay.State.RUNNING)
    for turn in turns:
        await change.turns.acreate(turn=turn)
    await change.turns.filter(turn=turns[0]).aupdate(state="completed", cost=7)
    assert await sync_to_async(replaying.store.claim)(change.pk)
    assert not await sync_to_async(replaying.store.claim)(change.pk)
    await Replay.objects.aupdate(lease_until=None)
    await run(change)
    costs = [row.cost async for row in change.turns.all()]
    assert costs[0] == 7
    assert costs[1] < 1


async def test_a_turn_that_ends_its_process_is_given_up_and_the_rest_goes_on(
    chat, host, tools, running
):
    turns = [(await answer(chat, text=f"Hi {n}"))[0] for n in range(2)]
    change = await Replay.objects.acreate(name="try")
    for turn in turns:
        await change.turns.acreate(turn=turn)
    for _ in range(leased_batches.MAX_ATTEMPTS):  # each process is lost with the turn
        lease = await sync_to_async(replaying.store.claim)(change.pk)
        row = await sync_to_async(replaying.store.next_row)(change.pk, lease)
        assert row.turn_id == turns[0].pk
        await Replay.objects.aupdate(lease_until=None)
    await run(change)
    first, second = [row async for row in change.turns.order_by("pk")]
    assert (first.state, second.state) == ("failed", "completed")
    assert "its process was lost 3 times" in first.error
    assert change.state == Replay.State.DONE


async def test_a_machine_whose_clock_is_ahead_takes_over_no_replay(
    chat, host, tools, running, monkeypatch
):
    if connection.vendor != "postgresql":
        pytest.skip("with SQLite there is one process")
    store, call = replaying.store, sync_to_async
    turn, _ = await answer(chat, text="Hi")
    change = await Replay.objects.acreate(name="try")
    await change.turns.acreate(turn=turn)
    lease = await call(store.claim)(change.pk)
    now = timezone.now() + timedelta(hours=1)
    with monkeypatch.context() as patched:
        patched.setattr(timezone, "now", lambda: now)
        assert await call(store.find_due)() is None
        assert await call(store.claim)(change.pk) is None
        row = await call(store.next_row)(change.pk, lease)
    assert store.lease_of(row) < now
    assert await call(store.next_row)(change.pk, store.lease_of(row)) is not None


async def test_a_process_that_stood_still_leaves_a_replay_to_its_successor(
    chat, host, tools, running
):
    store, call = replaying.store, sync_to_async
    turns = [(await answer(chat, text=f"Hi {n}"))[0] for n in range(2)]
    change = await Replay.objects.acreate(name="try")
    for turn in turns:
        await change.turns.acreate(turn=turn)
    lease = await call(store.claim)(change.pk)
    row = await call(store.next_row)(change.pk, lease)
    await Replay.objects.aupdate(lease_until=timezone.now() - timedelta(seconds=1))
    newer = await call(store.claim)(change.pk)
    again = await call(store.next_row)(change.pk, newer)
    assert again.pk == row.pk
    row.state = ReplayedTurn.State.FAILED
    await call(store.end_row)(row)
    await call(store.give_back)(row)
    assert await call(store.next_row)(change.pk, store.lease_of(row)) is None
    await change.arefresh_from_db()
    assert change.lease_until == store.lease_of(again)
    first, second = [each async for each in change.turns.order_by("pk")]
    assert [first.state, second.state] == ["pending", "pending"]
    assert (first.attempts, second.attempts) == (2, 0)
    again.state = ReplayedTurn.State.COMPLETED
    await call(store.end_row)(again)
    assert await change.turns.filter(state="completed").acount() == 1
