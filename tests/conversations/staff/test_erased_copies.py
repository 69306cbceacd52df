"""What corrections and deletions of items erase beside the item, in the admin."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.models import (
    Conversation,
    Item,
    Question,
    Replay,
    ReplayedTurn,
    ToolCall,
    Turn,
)
from conversations.search.index import index_pending
from llm.models import ModelCall, ModelExchange
from llm.wire.items import function_call_output, user_message
from tests.conversations.scene import a_finished_turn, a_user, signed_in, staff

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

SECRET = "swordfish"


@pytest.fixture
def turn() -> Turn:
    """Its question, call, output, calls and a replay repeat a secret."""
    conversation = Conversation.objects.create(owner=a_user("ada"))
    turn = a_finished_turn(conversation, f"It is {SECRET}", "I see")
    call_item = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "look_up",
        "arguments": json.dumps({"word": SECRET}),
        "status": "completed",
    }
    payloads = [
        call_item,
        function_call_output("call_1", SECRET),
    ]
    for position, payload in enumerate(payloads, 2):
        Item.of(turn, position, payload, origin=Item.Origin.OUTPUT).save()
    call = turn.tool_calls.create(
        call_id="call_1", name="look_up", output=SECRET, state=ToolCall.State.COMPLETED
    )
    Question.objects.create(
        tool_call=call,
        kind=Question.Kind.APPROVAL,
        state=Question.State.ACCEPTED,
        arguments={"word": SECRET},
        answer={"word": SECRET},
        expires_at=timezone.now() + timedelta(days=1),
    )
    replay = Replay.objects.create(name="try", state=Replay.State.DONE)
    answer = user_message(SECRET)
    ReplayedTurn.objects.create(
        replay=replay, turn=turn, items=[answer], state=ReplayedTurn.State.COMPLETED
    )
    for about in ({"turn_id": turn.pk}, {"replayed_turn_id": turn.pk}):
        made = ModelCall.objects.create(
            provider_name="Test",
            model_name="m",
            status=ModelCall.Status.FAILED,
            error_detail=f"Bad word: {SECRET}",
            **about,
        )
        ModelExchange.objects.create(call=made, content=SECRET.encode())
    index_pending()
    return turn


@pytest.fixture
def editor() -> Client:
    rights = ("inspect_turn", "edit_items", "delete_item")
    return signed_in(staff("editor", *rights))


def page_of(row: Item | Turn | Conversation, name: str = "change") -> str:
    kind = row._meta.model_name
    return reverse(f"admin:conversations_{kind}_{name}", args=[row.pk])


def post_texts(client: Client, item: Item, **texts: str) -> Any:
    form = client.get(page_of(item)).context["adminform"].form
    data = {name: form[name].value() for name in form.fields} | texts
    payload = json.loads(form["payload"].value())
    return client.post(page_of(item), data | {"payload": json.dumps(payload)})


def copies() -> set[str]:
    """Tables that have the secret, and that of requests if it has any row."""
    tables = (Item, ToolCall, Question, ReplayedTurn, ModelCall)
    found = {each for each in tables if SECRET in str(list(each.objects.values()))}
    if ModelExchange.objects.exists():
        found.add(ModelExchange)
    return {each.__name__ for each in found}


def test_a_correction_reaches_replays_and_their_calls(editor: Client, turn: Turn):
    item = turn.items.get(position=0)
    assert post_texts(editor, item, text_0="It is [redacted]").status_code == 302
    assert copies() == {"Item", "ToolCall", "Question"}  # of the call
    replayed = ReplayedTurn.objects.get()
    assert (replayed.state, replayed.items) == ("completed", [])
    assert "Erased" in replayed.error


def test_corrected_arguments_leave_no_copy_in_questions(editor: Client, turn: Turn):
    item = turn.items.get(type="function_call")
    answer = post_texts(editor, item, text_0='{"word": "[redacted]"}')
    assert answer.status_code == 302
    question = Question.objects.get()
    assert question.arguments == {"word": "[redacted]"}
    assert SECRET not in str(question.answer)
    assert question.state == Question.State.ACCEPTED


@pytest.mark.parametrize("in_list", [False, True])
def test_a_deleted_item_leaves_no_copy(editor: Client, turn: Turn, in_list: bool):
    Item.objects.update(provider_data={"raw": "proof"})
    for item in turn.items.exclude(position=1).order_by("position"):
        if in_list:
            action = {"action": "delete_selected", "_selected_action": [item.pk]}
            url = reverse("admin:conversations_item_changelist")
            answer = editor.post(url, {**action, "post": "yes"})
        else:
            answer = editor.post(page_of(item, "delete"), {"post": "yes"})
        assert answer.status_code == 302
    assert copies() == set()
    [left] = turn.items.all()
    assert left.provider_data is None
    turn.refresh_from_db()
    assert turn.is_indexed is False


def test_items_of_a_running_turn_are_not_deleted(editor: Client, turn: Turn):
    Turn.objects.update(status=Turn.Status.RUNNING)
    item = turn.items.get(position=0)
    assert editor.post(page_of(item, "delete"), {"post": "yes"}).status_code == 403
    action = {"action": "delete_selected", "_selected_action": [item.pk]}
    url = reverse("admin:conversations_item_changelist")
    editor.post(url, {**action, "post": "yes"})
    assert Item.objects.filter(pk=item.pk).exists()


@pytest.mark.parametrize("status", [Turn.Status.RUNNING, Turn.Status.WAITING])
def test_a_conversation_is_deleted_with_a_turn_that_is_not_finished(
    turn: Turn, status: Turn.Status
):
    Turn.objects.update(status=status)
    root = signed_in(a_user("root", is_staff=True, is_superuser=True))
    for row in (turn, turn.conversation):
        page = root.get(page_of(row, "delete"))
        assert "Yes, I’m sure" in page.text
    answer = root.post(page_of(turn.conversation, "delete"), {"post": "yes"})
    assert answer.status_code == 302
    assert not Item.objects.exists()


def test_an_older_page_takes_back_no_redaction(editor: Client, turn: Turn):
    item = turn.items.get(position=0)
    form = editor.get(page_of(item)).context["adminform"].form
    older = {name: form[name].value() for name in form.fields}
    other = signed_in(staff("other", "inspect_turn", "edit_items"))
    post_texts(other, item, text_0="It is [redacted]")
    answer = editor.post(page_of(item), older | {"text_0": f"It was {SECRET}"})
    assert answer.status_code == 200
    assert "Others have changed this meanwhile" in answer.content.decode()
    item.refresh_from_db()
    assert item.payload["content"][0]["text"] == "It is [redacted]"


def test_an_older_page_takes_back_no_options(editor: Client, turn: Turn):
    url = reverse("admin:conversations_turn_change", args=[turn.pk])
    form = editor.get(url).context["adminform"].form
    seen = form["seen"].value()
    Turn.objects.update(options={"temperature": 1})
    answer = editor.post(url, {"options": "{}", "seen": seen})
    assert answer.status_code == 200
    turn.refresh_from_db()
    assert turn.options == {"temperature": 1}
