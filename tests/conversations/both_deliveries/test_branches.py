"""Branches of a conversation run side by side; a turn waits for those it follows."""

from __future__ import annotations

import pytest
from asgiref.sync import sync_to_async
from django.db import transaction

from conversations import engine
from conversations.engine import background_store, claim_store
from conversations.engine.loading import late_results
from conversations.models import Conversation, Item, ToolCall, Turn
from conversations.requests.branches import continue_turn
from llm.errors import ProviderDown
from llm.models import LanguageModel, Provider
from llm.wire.deltas import FinishDelta, TextDelta
from llm.wire.items import text_of, user_message
from tests.conversations.both_deliveries.test_background import ANSWER, ended
from tests.conversations.script import HANG

LOCAL = "http://10.1.2.3:8000/v1"

pytestmark = pytest.mark.django_db(transaction=True)


def opened(conversation: Conversation, text: str = "Hi", **where) -> Turn:
    return conversation.open_turn([user_message(text)], **where).turn


def end(turn: Turn, status: str = "completed") -> None:
    Turn.objects.filter(pk=turn.pk).update(status=status, lease_until=None)


def test_siblings_run_side_by_side_and_their_successors_wait(conversation):
    root = opened(conversation)
    end(root)
    one, other = (opened(conversation, n, parent=root) for n in "ab")
    after = opened(conversation, parent=one)
    assert claim_store.find_next_turns(conversation.pk) == ([one.pk, other.pk], False)
    assert all(claim_store.claim(turn.pk) for turn in (one, other))
    assert claim_store.claim(after.pk) is None
    end(other)
    assert claim_store.claim(after.pk) is None
    end(one)
    assert claim_store.find_next_turns(conversation.pk) == ([after.pk], False)
    assert claim_store.claim(after.pk)


@pytest.mark.parametrize("status", ["cancelled", "failed"])
def test_a_turn_behind_one_that_was_stopped_early_waits_for_those_before(
    conversation, status
):
    running = opened(conversation)
    assert claim_store.claim(running.pk)
    stopped = opened(conversation)
    last = opened(conversation)
    end(stopped, status)
    assert last.parent_id == stopped.pk
    assert claim_store.claim(last.pk) is None
    end(running)
    assert claim_store.claim(last.pk)


async def test_stop_ends_one_branch_only(conversation, say, running):
    say([HANG], [HANG])
    one = await engine.open(lambda: conversation.open_turn([user_message("a")]))
    other = await engine.open(
        lambda: conversation.open_turn([user_message("b")], is_first=True)
    )
    await sync_to_async(engine.cancel)(other)
    await ended(other)
    rows = dict([row async for row in Turn.objects.values_list("pk", "status")])
    assert rows[other.pk] == "cancelled"
    assert rows[one.pk] != "cancelled"
    await sync_to_async(engine.cancel)(one)
    await ended(one)


def a_result(turn: Turn, call_id: str = "call_1") -> None:
    """The result of a background call of the turn, which no turn has delivered."""
    call = {"type": "function_call", "call_id": call_id, "name": "dig"}
    call |= {"id": f"fc_{call_id}", "arguments": "{}", "status": "completed"}
    Item.of(turn, 5, call, origin=Item.Origin.OUTPUT).save()
    ToolCall.objects.create(
        turn=turn, call_id=call_id, name="dig", state="completed", blocking=False
    )


@transaction.atomic
def open_for_results(conversation: Conversation, **how) -> str | None:
    return background_store.open_turn_for_results(conversation.pk, **how)


def test_a_result_opens_a_turn_at_the_end_of_its_own_branch(conversation):
    root = opened(conversation)
    end(root)
    one, other = (opened(conversation, n, parent=root) for n in "ab")
    end(one)
    a_result(one)
    # A turn that runs in another branch does not deliver it.
    assert claim_store.claim(other.pk)
    new = open_for_results(conversation, is_ending=True)
    assert new is not None
    row = Turn.objects.get(pk=new)
    assert (row.parent_id, row.caused_by_id) == (one.pk, one.pk)
    assert late_results.has_undelivered_results(row)
    assert not late_results.has_undelivered_results(other)
    assert late_results.load_results(other.pk) == []
    assert len(late_results.load_results(new)) == 1
    assert open_for_results(conversation) is None


async def test_the_model_reads_its_own_branch_only(conversation, say, running):
    script = say(ANSWER, ANSWER, ANSWER)
    await _answered(conversation, "root")
    root = await Turn.objects.aget()
    await _answered(conversation, "first try", parent=root)
    await _answered(conversation, "second try", parent=root)
    texts = str(script.requests[-1].items)
    assert "root" in texts
    assert "second try" in texts
    assert "first try" not in texts


async def _answered(conversation, text, **where) -> None:
    items = [user_message(text)]
    turn = await engine.open(lambda: conversation.open_turn(items, **where))
    await ended(turn)


def test_a_message_continues_the_branch_that_its_owner_looks_at(conversation):
    root = opened(conversation)
    one = opened(conversation, parent=root)
    other = opened(conversation, parent=root)
    assert opened(conversation).parent_id == other.pk
    assert opened(conversation, parent=one).parent_id == one.pk
    below_one = opened(conversation)
    assert Turn.objects.get(pk=below_one.parent_id).parent_id == one.pk


# Going on with an answer that was cut

BEGUN = "A long answer, which the model's limit of tokens has cut in the mid"
REST = "dle of a word."


async def _cut(conversation: Conversation, say, kind: str, **model):
    """A model that takes prefills or none, and its cut answer."""
    host = await Provider.objects.acreate(
        name="Ours", kind=kind, base_url=LOCAL, allow_private_network=True
    )
    row = await LanguageModel.objects.acreate(provider=host, name="qwen3", **model)
    await Conversation.objects.aupdate(language_model=row)
    await conversation.arefresh_from_db()
    cut = [TextDelta("t", BEGUN), FinishDelta("length")]
    script = say(cut, [TextDelta("t", REST), FinishDelta("stop")])
    await _answered(conversation, "Tell me.")
    turn = await Turn.objects.select_related("conversation__owner").aget()
    assert turn.status == "incomplete"
    return script, turn


async def _continued(turn: Turn) -> Turn:
    found = await Turn.objects.select_related(
        "conversation__owner", "language_model__provider"
    ).aget(pk=turn.pk)
    owner = found.conversation.owner
    opened = await sync_to_async(continue_turn)(found, owner)
    await ended(opened)
    await opened.arefresh_from_db()
    return opened


async def test_a_model_that_takes_a_prefill_goes_on_with_the_same_text(
    conversation, say, running
):
    script, turn = await _cut(conversation, say, "vllm")
    opened = await _continued(turn)
    request = script.requests[-1]
    assert request.prefill == BEGUN
    assert [text_of(item) for item in request.items] == ["Tell me."]
    assert (opened.parent_id, opened.status) == (None, "completed")
    said = [row.payload async for row in opened.items.filter(origin="output")]
    assert [text_of(item) for item in said] == [BEGUN + REST]
    assert said[0]["status"] == "completed"
    await turn.arefresh_from_db()
    assert turn.status == "incomplete"


async def test_a_model_that_takes_no_prefill_is_asked_for_the_rest(
    conversation, say, running
):
    script, turn = await _cut(conversation, say, "openai_compatible")
    opened = await _continued(turn)
    assert script.requests[-1].prefill == ""
    asked = [text_of(item) for item in script.requests[-1].items]
    assert asked[:2] == ["Tell me.", BEGUN]
    assert "cut off" in asked[2]
    assert opened.parent_id == turn.pk
    said = [row.payload async for row in opened.items.filter(origin="output")]
    assert [text_of(item) for item in said] == [REST]


@pytest.mark.parametrize("can_stand_in", [True, False])
async def test_only_a_fallback_that_takes_a_prefill_stands_in_for_the_rest(
    conversation, say, running, can_stand_in
):
    once = {"retry": {"attempts": 1}}
    _, turn = await _cut(conversation, say, "vllm", options=once)
    first = await LanguageModel.objects.select_related("provider").aget(name="qwen3")
    anew = await Provider.objects.acreate(
        name="Theirs", kind="openai_compatible", base_url=LOCAL
    )
    others = [await LanguageModel.objects.acreate(provider=anew, name="writes-anew")]
    if can_stand_in:
        others.append(
            await LanguageModel.objects.acreate(
                provider=first.provider, name="qwen3-small"
            )
        )
    await first.fallbacks.aset(others)
    script = say([ProviderDown()], [TextDelta("t", REST), FinishDelta("stop")])
    opened = await _continued(turn)
    names = [request.model for request in script.requests]
    said = [row.payload async for row in opened.items.filter(origin="output")]
    if can_stand_in:
        assert names == ["qwen3", "qwen3-small"]
        assert [text_of(item) for item in said] == [BEGUN + REST]
    else:
        assert names == ["qwen3"]
        assert opened.status == "failed"
        assert [text_of(item) for item in said] == [BEGUN]


async def test_two_tabs_continue_an_answer_once(conversation, say, running):
    _, turn = await _cut(conversation, say, "vllm")
    owner = await sync_to_async(lambda: turn.conversation.owner)()
    say([HANG])
    first, second = [
        await sync_to_async(
            lambda: continue_turn(Turn.objects.get(pk=turn.pk), owner)
        )()
        for _ in range(2)
    ]
    assert first.pk == second.pk
    await sync_to_async(engine.cancel)(first)
    await ended(first)
    await first.arefresh_from_db()
    said = [row.payload async for row in first.items.filter(origin="output")]
    assert [text_of(item) for item in said] == [BEGUN]  # nothing shown is lost
