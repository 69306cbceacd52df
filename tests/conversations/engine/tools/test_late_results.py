"""A result that comes too late: the call's state, and where it is shown."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.engine import background_store
from conversations.models import Conversation, Item, ToolCall
from tests.conversations.scene import (
    a_finished_turn,
    a_model,
    a_user,
    program,
    signed_in,
)

pytestmark = pytest.mark.django_db

LATE = "planted late result"


@pytest.fixture
def ada() -> Any:
    return a_user("ada")


@pytest.fixture
def conversation(ada: Any) -> Conversation:
    model = a_model()
    return Conversation.objects.create(owner=ada, language_model=model)


@pytest.fixture
def call(conversation: Conversation) -> ToolCall:
    """One whose work runs on another server, of a turn that is over."""
    turn = a_finished_turn(conversation, "Send it")
    payload = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "send_parcel",
        "arguments": '{"to": "Riga"}',
        "status": "completed",
    }
    Item.of(turn, 2, payload, origin=Item.Origin.OUTPUT).save()
    return ToolCall.objects.create(
        turn=turn,
        call_id="call_1",
        name="send_parcel",
        state="executing",
        blocking=False,
        started_at=timezone.now(),
        accepted_at=timezone.now(),
    )


def post(call: ToolCall, settings: Any, **result: str) -> Any:
    settings.PUBLIC_URL = "https://parley.test"
    path = background_store.callback_url(call.pk).removeprefix(settings.PUBLIC_URL)
    sent = result or {"output": LATE}
    return Client().post(path, sent, content_type="application/json")


def over(call: ToolCall, state: str) -> None:
    ToolCall.objects.filter(pk=call.pk).update(
        state=state, output="Error: it is over.", error="it is over.", lease_until=None
    )


@pytest.mark.parametrize("state", ["timed_out", "cancelled", "unknown"])
def test_a_result_after_the_end_changes_nothing_and_is_recorded(
    call, settings, ada, admin_client, state
):
    over(call, state)
    for _ in range(2):
        refused = post(call, settings)
        assert (refused.status_code, refused.json()["error"]["code"]) == (
            410,
            "call_over",
        )
    call.refresh_from_db()
    assert (call.state, call.output) == (state, "Error: it is over.")
    assert call.late_at
    assert call.turn.conversation.turns.filter(parent=call.turn).count() == 0

    conversation = call.turn.conversation
    path = f"/api/conversations/{conversation.pk}/tool-calls/"
    (stored,) = program(ada).get(path).json()["results"]
    assert (stored["state"], stored["late_at"] is not None) == (state, True)
    page = signed_in(ada).get(f"/chat/{conversation.pk}/").content.decode()
    assert "A result arrived too late and was not used." in page
    assert LATE not in page
    url = reverse("admin:conversations_toolcall_changelist")
    listed = admin_client.get(f"{url}?late=1").content.decode()
    assert "send_parcel" in listed


@pytest.mark.parametrize("result", [{"output": LATE}, {"error": LATE}])
def test_a_result_after_the_deletion_of_the_conversation_is_dropped(
    call, settings, conversation, admin_client, result
):
    conversation.delete_softly()
    assert post(call, settings, **result).status_code == 204
    call.refresh_from_db()
    assert call.state == ToolCall.State.CANCELLED
    assert call.late_at
    assert LATE not in f"{call.output} {call.error}"
    assert conversation.turns.count() == 1
    assert post(call, settings, **result).status_code == 410
    url = reverse("admin:conversations_toolcall_change", args=[call.pk])
    page = admin_client.get(url).content.decode()
    assert "The conversation was deleted before the result arrived." in page
    assert LATE not in page


def test_a_result_after_erasure_finds_nothing(call, settings, conversation):
    settings.PUBLIC_URL = "https://parley.test"
    path = background_store.callback_url(call.pk).removeprefix(settings.PUBLIC_URL)
    conversation.delete()
    answer = Client().post(path, {"output": LATE}, content_type="application/json")
    assert answer.status_code == 404


def test_a_result_that_comes_in_time_is_not_late(call, settings):
    assert post(call, settings).status_code == 204
    call.refresh_from_db()
    assert (call.state, call.output, call.late_at) == ("completed", LATE, None)
