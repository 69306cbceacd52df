"""Answers that ended while the reader was elsewhere: the dot in the list."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.models import Conversation, LastSeen, Turn
from tests.conversations.page_scene import (
    a_turn,
    ada,
    conversation,
    model,
    page_of,
    submitted,
    web,
)
from tests.conversations.scene import a_user, signed_in

__all__ = ["ada", "conversation", "model", "submitted", "web"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

DOT = 'aria-label="new answer"'


def listed(web: Client) -> str:
    return web.get(reverse("conversation-list")).content.decode()


def end(turn: Turn, **ago: int) -> None:
    Turn.objects.filter(pk=turn.pk).update(
        status="completed", finished_at=timezone.now() - timedelta(**ago)
    )


@pytest.fixture
def turn(web: Client, conversation: Conversation) -> Turn:
    """A running turn, whose sender has seen the page."""
    running = a_turn(conversation, Turn.Status.RUNNING)
    web.get(page_of(conversation))
    return running


def test_an_answer_that_ended_elsewhere_has_a_dot_until_the_page_is_opened(
    web, conversation, turn
):
    assert DOT not in listed(web)
    end(turn)
    assert DOT in listed(web)
    api = reverse("api:conversation", args=[conversation.pk])
    assert web.get(api).json()["unread"] is True
    assert DOT not in web.get(page_of(conversation)).content.decode()
    assert DOT not in listed(web)
    assert web.get(api).json()["unread"] is False


def test_an_open_page_says_that_its_reader_has_seen_the_answer(web, conversation, turn):
    end(turn)
    seen = web.post(reverse("api:seen", args=[conversation.pk]))
    assert seen.status_code == 204
    assert DOT not in listed(web)


def test_a_conversation_that_was_never_opened_has_no_dot(web, conversation):
    end(a_turn(conversation, Turn.Status.RUNNING))
    assert DOT not in listed(web)


def test_reading_again_writes_nothing(web, conversation, turn):
    end(turn)
    web.get(page_of(conversation))
    at = LastSeen.objects.get().at
    web.get(page_of(conversation))
    assert LastSeen.objects.get().at == at


def test_what_one_user_sees_is_nothing_to_another(web, conversation, turn):
    end(turn)
    eve: Any = a_user("eve")
    refused = signed_in(eve).post(reverse("api:seen", args=[conversation.pk]))
    assert refused.status_code == 404
    LastSeen.objects.note(eve, conversation)
    assert DOT in listed(web)
