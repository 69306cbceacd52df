"""The messages that wait, on the page, without JavaScript."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.models import Conversation, Participant, Turn
from conversations.turns import waiting_messages
from llm.wire.items import message, text_of, user_message
from tests.conversations.page_scene import (
    a_turn,
    ada,
    conversation,
    model,
    page_of,
    read,
    shown,
    submitted,
    web,
)
from tests.conversations.scene import a_user, signed_in

__all__ = ["ada", "conversation", "model", "submitted", "web"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.fixture
def running(conversation: Conversation) -> Turn:
    return a_turn(conversation, Turn.Status.RUNNING, epoch=1)


def send(web: Client, conversation: Conversation, text: str, **data: str) -> Any:
    sent = web.post(page_of(conversation), {"text": text, **data})
    assert sent.status_code == 302, read(sent)
    turn = sent.url.rpartition("#turn-")[2]
    return Turn.objects.get(pk=turn)


def act(web: Client, turn: Turn, **data: str) -> Any:
    return web.post(
        reverse("change-queued", args=[turn.conversation_id, turn.pk]), data
    )


def listed(web: Client, conversation: Conversation) -> str:
    return read(web.get(reverse("queue", args=[conversation.pk])))


def test_waiting_messages_stand_above_the_box_and_not_in_the_transcript(
    web, conversation, running
):
    b, c = (send(web, conversation, text) for text in ("Second", "Third"))
    page = web.get(page_of(conversation)).content.decode()
    assert page.index("Second") < page.index("Third")
    for turn in (b, c):
        article = page.partition(f'id="turn-{turn.pk}"')[2].partition(">")[0]
        assert article.endswith(" hidden")
        assert shown(web, turn).content.decode().count(" hidden>") >= 1
    assert "Next" in listed(web, conversation)


def test_a_message_is_changed_moved_and_removed_with_forms(web, conversation, running):
    b, c = (send(web, conversation, text) for text in ("Second", "Third"))
    assert act(web, c, act="up", text="Third").status_code == 302
    found = listed(web, conversation)
    assert found.index("Third") < found.index("Second")
    assert act(web, b, act="change", text="Other\r\nwords").status_code == 302
    assert text_of(b.items.get().payload) == "Other\nwords"
    assert act(web, c, act="remove").status_code == 302
    assert "Third" not in listed(web, conversation)


def test_the_three_buttons_say_when_the_message_is_sent(web, conversation, running):
    page = web.get(page_of(conversation)).content.decode()
    for when in ("queue", "steer", "interrupt"):
        assert f'name="when" value="{when}"' in page
    assert send(web, conversation, "a", when="steer").steering == "asked"
    assert send(web, conversation, "b", when="queue").steering == ""
    now = send(web, conversation, "c", when="interrupt")
    running.refresh_from_db()
    assert running.cancel_requested
    found = listed(web, conversation)
    assert found.index(" c ") < found.index(" a ") < found.index(" b ")
    refused = web.post(page_of(conversation), {"text": "x", "when": "never"})
    assert refused.status_code == 400
    assert now.parent_id == running.pk


def test_a_late_change_says_so_and_keeps_the_text(web, conversation, running):
    b = send(web, conversation, "Second")
    Turn.objects.filter(pk=b.pk).update(status="in_progress", epoch=1)
    refused = act(web, b, act="change", text="My better words")
    assert refused.status_code == 409
    assert "It has been sent already." in read(refused)
    assert "My better words" in read(refused)
    assert text_of(b.items.get().payload) == "Second"


@pytest.mark.parametrize("data", [{}, {"act": "dance"}, {"act": "change", "text": " "}])
def test_a_nonsensical_change_is_refused_and_changes_nothing(
    web, conversation, running, data
):
    b = send(web, conversation, "Second")
    assert act(web, b, **data).status_code == 409
    assert "Second" in listed(web, conversation)


def test_too_long_a_text_is_refused(web, conversation, running, settings):
    settings.MAX_INPUT_SIZE = 20
    b = send(web, conversation, "Second")
    assert "too long" in read(act(web, b, act="change", text="é" * 11))


def test_a_file_stays_when_its_words_change(web, conversation, running):
    item = user_message("Look")
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    item["content"].insert(0, picture)
    turn = conversation.open_turn([item]).turn
    assert "1 file" in listed(web, conversation)
    act(web, turn, act="change", text="Look closely")
    kinds = [part["type"] for part in turn.items.get().payload["content"]]
    assert kinds == ["input_image", "input_text"]


def test_the_queue_of_another_user_is_not_found(web, conversation, running):
    b = send(web, conversation, "Second")
    eve = signed_in(a_user("eve"))
    assert eve.get(reverse("queue", args=[conversation.pk])).status_code == 404
    assert act(eve, b, act="remove").status_code == 404


def test_hostile_text_and_long_queues_are_shown_safely(web, conversation, running):
    send(web, conversation, "<script>alert(1)</script>")
    for number in range(60):
        conversation.open_turn([user_message(f"m{number}")])
    page = web.get(reverse("queue", args=[conversation.pk])).content.decode()
    assert "<script>alert" not in page
    assert page.count('class="queued"') == 50
    assert "and 11 more messages" in page


def test_a_message_that_joined_a_turn_is_shown_in_its_answer(web, conversation):
    turn = a_turn(
        conversation,
        Turn.Status.COMPLETED,
        message("assistant", "First part."),
        user_message("And <that>"),
        message("assistant", "Second part."),
    )
    page = shown(web, turn).content.decode()
    assert "And &lt;that&gt;" in page
    assert "is-steering" in page
    copied = page.partition('data-text="')[2].partition('"')[0]
    assert "that" not in copied
    assert "Second part." in copied


def test_who_takes_part_sees_all_that_waits_and_changes_only_their_own(
    web, conversation, running
):
    bob = a_user("bob")
    Participant.objects.create(
        conversation=conversation,
        user=bob,
        name="bob",
        role="writer",
        invited_by=conversation.owner,
        accepted_at=timezone.now(),
    )
    mine = send(web, conversation, "From Ada", when="steer")
    opened = waiting_messages.open_message(
        conversation, [user_message("From Bob")], "steer", author=bob
    )
    assert (mine.steering, opened.turn.steering) == ("asked", "")  # Bob pays for his
    theirs = signed_in(bob)
    assert "From Ada" in listed(theirs, conversation)
    assert act(theirs, mine, act="remove").status_code == 404
    path = f"/api/turns/{mine.pk}/"
    assert theirs.delete(path).status_code == 404
    assert act(theirs, opened.turn, act="remove").status_code == 302
    assert "From Bob" not in listed(web, conversation)
    assert "From Ada" in listed(theirs, conversation)
    page = theirs.get(reverse("queue", args=[conversation.pk])).content.decode()
    assert 'value="remove"' not in page
    waiting = theirs.get(f"/api/conversations/{conversation.pk}/queue/")
    assert [turn["id"] for turn in waiting.json()["data"]] == [mine.pk]
