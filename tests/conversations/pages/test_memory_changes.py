"""What models stored and forgot about the reader, at its turn, with a way back."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from conversations import tools
from conversations.models import Conversation, Turn
from conversations.models.memory import MAX_COUNT, Memory
from llm.wire.items import message
from tests.conversations.page_scene import (
    a_turn,
    ada,
    conversation,
    model,
    page_of,
    read,
    shown,
    web,
)
from tests.conversations.scene import a_user, signed_in
from tools.execute import CallOutcome, execute
from tools.registry import Context, python_tools

__all__ = ["ada", "conversation", "model", "web"]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("scripted_host"),
]
HOSTILE = "<script>alert(1)</script> likes tea"


@pytest.fixture
def turn(conversation: Conversation) -> Turn:
    return a_turn(conversation, Turn.Status.COMPLETED, message("assistant", "I see."))


def run(turn: Turn, name: str, arguments: str) -> CallOutcome:
    """As a turn runs the call."""
    assert tools
    context = Context(
        user_id=turn.actor_id, conversation_id=turn.conversation_id, turn_id=turn.pk
    )
    call = {"call_id": f"c_{name}", "name": name, "arguments": arguments}
    turn.tool_calls.get_or_create(
        call_id=call["call_id"], defaults={"name": name, "state": "completed"}
    )

    async def outcome() -> CallOutcome:
        async for event in execute([call], dict(python_tools()), context):
            if isinstance(event, CallOutcome):
                return event
        raise AssertionError("every call has an outcome")

    return async_to_sync(outcome)()


def remember(turn: Turn, text: str) -> Memory:
    run(turn, "remember", f'{{"text": "{text}"}}')
    return Memory.objects.get(text=text)


def undo_url(turn: Turn, memory: Memory) -> str:
    return reverse("undo-memory", args=[turn.conversation_id, turn.pk, memory.pk])


def test_what_is_remembered_is_shown_at_its_turn_and_undone(
    web: Client, conversation: Conversation, turn: Turn
):
    memory = remember(turn, HOSTILE)
    page = web.get(page_of(conversation)).content.decode()
    assert "<script>alert" not in page
    assert f"Remembered {HOSTILE} Undo" in read(shown(web, turn))
    back = web.post(undo_url(turn, memory))
    assert back["Location"] == f"{page_of(conversation)}#turn-{turn.pk}"
    assert not Memory.objects.of(memory.user_id).exists()
    assert "Remembered" not in read(shown(web, turn))
    assert web.post(undo_url(turn, memory)).status_code == 302  # another tab
    assert not Memory.objects.of(memory.user_id).exists()


def test_what_is_forgotten_is_shown_and_restored(web: Client, turn: Turn):
    memory = Memory.objects.remember(turn.actor_id, "Likes tea")
    run(turn, "forget", f'{{"id": {memory.pk}}}')
    assert "Forgotten Likes tea Undo" in read(shown(web, turn))
    listed = web.get(reverse("api:memories"), {"forgotten_in": turn.pk}).json()
    assert [each["id"] for each in listed["results"]] == [memory.pk]
    web.post(undo_url(turn, memory))
    assert Memory.objects.of(turn.actor_id).get() == memory
    assert "Forgotten" not in read(shown(web, turn))


def test_a_memory_of_before_is_not_of_this_turn(web: Client, turn: Turn):
    """Undoing it would delete what an earlier turn has stored."""
    memory = Memory.objects.remember(turn.actor_id, "Likes tea")
    remember(turn, "Likes tea")
    assert "Remembered" not in read(shown(web, turn))
    web.post(undo_url(turn, memory))
    assert Memory.objects.of(turn.actor_id).exists()


def test_programs_list_and_undo_them_too(web: Client, turn: Turn):
    memory = remember(turn, "Likes tea")
    Memory.objects.remember(turn.actor_id, "Of no turn")
    listed = web.get(reverse("api:memories"), {"turn": turn.pk}).json()["results"]
    assert [each["text"] for each in listed] == ["Likes tea"]
    assert web.delete(reverse("api:memory", args=[memory.pk])).status_code == 204
    restore = reverse("api:restore-memory", args=[memory.pk])
    assert web.post(restore).status_code == 404  # its owner deleted it
    memory = remember(turn, "Likes rain")
    run(turn, "forget", f'{{"id": {memory.pk}}}')
    restore = reverse("api:restore-memory", args=[memory.pk])
    assert web.post(restore).json()["text"] == "Likes rain"


def test_beyond_the_limit_nothing_is_restored(web: Client, turn: Turn):
    memory = remember(turn, "Likes tea")
    run(turn, "forget", f'{{"id": {memory.pk}}}')
    Memory.objects.bulk_create(
        Memory(user_id=turn.actor_id, text=f"Fact {n}") for n in range(MAX_COUNT)
    )
    restore = reverse("api:restore-memory", args=[memory.pk])
    assert web.post(restore).status_code == 409
    assert web.post(undo_url(turn, memory))["Location"] == reverse("memories")
    assert Memory.objects.of(turn.actor_id).count() == MAX_COUNT


def test_they_are_nobody_elses(web: Client, turn: Turn, ada: User):
    memory = remember(turn, "Likes tea")
    bo: Any = a_user("bo")
    other = signed_in(bo)
    assert other.post(undo_url(turn, memory)).status_code == 404
    run(turn, "forget", f'{{"id": {memory.pk}}}')
    restore = reverse("api:restore-memory", args=[memory.pk])
    assert other.post(restore).status_code == 404
    assert not Memory.objects.of(ada.pk).exists()
