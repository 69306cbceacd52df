"""Instructions and effort of a conversation, on the page and over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from conversations.models import Conversation
from tests.conversations.page_scene import ada, conversation, model, read, web
from tests.conversations.scene import a_user, program, signed_in

__all__ = ["ada", "conversation", "model", "web"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


def options_page(row: Conversation) -> str:
    return reverse("chat-options", args=[row.pk])


def test_a_new_chat_begins_with_instructions_and_effort(web: Client, model: Any):
    fields = {"text": "Hi", "instructions": " Answer in verse. ", "effort": "high"}
    web.post("/", fields)
    begun = Conversation.objects.get()
    assert begun.instructions == "Answer in verse."
    options = {"reasoning": {"effort": "high"}, "ignore_invalid_options": True}
    assert begun.options == options
    assert begun.turns.get().options == options


def test_a_new_chat_without_them_has_none(web: Client, model: Any):
    web.post("/", {"text": "Hi", "instructions": "", "effort": ""})
    begun = Conversation.objects.get()
    assert (begun.instructions, begun.options) == ("", {})


def test_they_are_changed_on_a_page_of_their_own(
    web: Client, conversation: Conversation
):
    assert options_page(conversation) in web.get("/").content.decode()
    fields = {"instructions": "Answer in verse.", "effort": "low"}
    answer = web.post(options_page(conversation), fields)
    assert answer.headers["Location"] == f"/chat/{conversation.pk}/"
    conversation.refresh_from_db()
    assert conversation.instructions == "Answer in verse."
    assert conversation.options["reasoning"] == {"effort": "low"}
    page = web.get(options_page(conversation)).content.decode()
    assert "Answer in verse.</textarea>" in page
    assert '<option value="low" selected>' in page


def test_an_effort_that_is_taken_back_leaves_nothing(
    web: Client, conversation: Conversation
):
    """Else a program's mistaken options would be ignored without a word."""
    before = conversation.options
    for effort in ("high", ""):
        web.post(options_page(conversation), {"instructions": "", "effort": effort})
    conversation.refresh_from_db()
    assert conversation.options == before


def test_what_programs_have_set_beside_stays(
    ada: Any, web: Client, conversation: Conversation
):
    reasoning = {"effort": "xhigh", "summary": "concise"}
    options = {"temperature": 0.5, "reasoning": reasoning}
    url = reverse("api:conversation", args=[conversation.pk])
    body = {"options": options}
    program(ada).patch(url, body, content_type="application/json")
    page = web.get(options_page(conversation)).content.decode()
    assert '<option value="xhigh" selected>' in page
    web.post(options_page(conversation), {"instructions": "", "effort": ""})
    conversation.refresh_from_db()
    left = {"temperature": 0.5, "reasoning": {"summary": "concise"}}
    assert conversation.options == left


@pytest.mark.parametrize("fields", [{"effort": "endless"}, {"instructions": "x" * 99}])
def test_what_cannot_be_is_refused(
    web: Client, conversation: Conversation, settings: Any, fields: dict[str, str]
):
    settings.MAX_INPUT_SIZE = 50
    answer = web.post(options_page(conversation), fields)
    assert answer.status_code == 200
    assert "field-error" in answer.content.decode()
    refused = web.post("/", {"text": "Hi", **fields})
    assert refused.status_code == 400
    assert "Hi" in read(refused)
    assert Conversation.objects.get() == conversation


def test_the_options_of_another_person_do_not_exist(conversation: Conversation):
    eve = signed_in(a_user("eve"))
    assert eve.get(options_page(conversation)).status_code == 404
    assert eve.post(options_page(conversation), {}).status_code == 404
