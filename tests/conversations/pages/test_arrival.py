"""How a page's scripts know that the message of a form has arrived."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from conversations.models import Conversation
from conversations.pages.views import ARRIVED_COOKIE
from tests.conversations.page_scene import (
    ada,
    conversation,
    model,
    page_of,
    submitted,
    web,
)

__all__ = ["ada", "conversation", "model", "submitted", "web"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("is_new", [True, False])
def test_the_answer_to_a_message_names_its_key(
    web: Client, conversation: Conversation, is_new: bool
):
    url = "/" if is_new else page_of(conversation)
    for key in ("k-1", "k-2"):  # of two tabs
        answer = web.post(url, {"text": "Hello", "model": "fast", "key": key})
        assert answer.status_code == 302
        assert answer.cookies[f"{ARRIVED_COOKIE}{key}"]["max-age"]
    assert {f"{ARRIVED_COOKIE}k-1", f"{ARRIVED_COOKIE}k-2"} <= set(web.cookies)


@pytest.mark.usefixtures("model")
def test_a_message_that_was_removed_can_be_sent_again(web: Client):
    sent = {"text": "Hello", "model": "fast", "key": "k-1"}
    assert web.post("/", sent).status_code == 302
    Conversation.objects.get().delete_softly()
    refused = web.post("/", sent)
    assert "was sent and then removed" in refused.text
    key = refused.context["form"]["key"].value()
    assert web.post("/", {**sent, "key": key}).status_code == 302
    assert Conversation.objects.count() == 2


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    "data",
    [{"text": "", "key": "k-1"}, {"text": "Hello", "model": "fast", "key": "k=1; a"}],
)
def test_no_other_answer_names_a_key(web: Client, data: dict[str, Any]):
    names = list(web.post("/", data).cookies)
    assert not any(name.startswith(ARRIVED_COOKIE) for name in names)
