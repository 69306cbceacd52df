"""Each way to send a message names the user who sends, for turns that wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from conversations import engine
from conversations.models import Conversation
from tests.conversations.scene import signed_in


def over_rest(client: Client, conversation: Conversation) -> Any:
    path = f"/api/conversations/{conversation.pk}/turns/"
    return client.post(path, {"input": "Hi"}, "application/json")


def by_form(client: Client, conversation: Conversation) -> Any:
    page = reverse("conversation", args=[conversation.pk])
    return client.post(page, {"text": "Hi", "key": "k1"})


@pytest.mark.parametrize("send", [over_rest, by_form])
def test_the_sender_is_the_owner_of_the_turn(
    send: Callable[[Client, Conversation], Any],
    conversation: Conversation,
    monkeypatch: pytest.MonkeyPatch,
):
    owners: list[int | None] = []

    def submit(
        turn_id: str,
        conversation_id: str = "",
        opened: Any = None,
        owner: int | None = None,
    ) -> None:
        owners.append(owner)

    monkeypatch.setattr(engine, "submit", submit)
    answer = send(signed_in(conversation.owner), conversation)
    assert answer.status_code in (202, 302)
    assert owners == [conversation.owner_id]
