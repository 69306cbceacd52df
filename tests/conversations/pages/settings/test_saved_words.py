"""A form that was saved says so on the page that follows."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from conversations.models import Conversation, Folder
from conversations.models.memory import Memory
from tests.conversations.page_scene import ada, conversation, model, read, web

__all__ = ["ada", "conversation", "model", "web"]
pytestmark = pytest.mark.django_db

BROWSER = {"Accept": "text/html,*/*;q=0.8"}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("folder", {"name": "Plans", "instructions": "Be brief."}),
        ("rename", {"title": "Other"}),
        ("organise", {"labels": "one"}),
        ("chat-options", {"instructions": "In verse."}),
        ("change-memory", {"text": "Likes tea.", "act": "save"}),
        ("prompts", {"name": "greet", "title": "", "text": "Hello"}),
    ],
)
def test_a_saved_form_says_so_once_and_scripts_say_it_themselves(
    web: Client, ada: Any, conversation: Conversation, name: str, fields: Any
):
    rows = {
        "folder": lambda: [Folder.objects.create(owner=ada, name="F").pk],
        "change-memory": lambda: [Memory.objects.create(user=ada, text="m").pk],
        "prompts": list,
    }
    url = reverse(name, args=rows.get(name, lambda: [conversation.pk])())
    answer = web.post(url, fields, headers=BROWSER)
    assert answer.status_code == 302
    assert read(web.get(answer["Location"])).count("Saved.") == 1
    assert "Saved." not in read(web.get(answer["Location"]))
    fields = {**fields, "name": fields.get("name", "") + "x"}
    assert web.post(url, fields).status_code == 302
    assert "Saved." not in read(web.get(answer["Location"]))
