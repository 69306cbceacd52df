"""Links to a message or an answer lead to it."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.models import Turn
from llm.wire.items import user_message
from tests.conversations.pages.test_branch_pages import ada, page, talk
from tests.conversations.scene import a_model

__all__ = ["ada", "talk"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


def expect_links_to_lead_somewhere(client: Client, html: str, count: int) -> None:
    """Each link to a message or an answer leads to one element of the page it opens."""
    links = re.findall(r'href="([^"]+\?at=[^"]+)#((?:message|answer)-[^"]+)"', html)
    assert len(links) == count
    for address, anchor in links:
        assert client.get(address).text.count(f'id="{anchor}"') == 1


def test_links_of_compared_answers_lead_to_them_before_and_after_one_goes_on(ada, talk):
    url = reverse("conversation", args=[talk.pk])
    other = a_model("m-2").public_name
    ada.post(url, {"text": "Which?", "compare": [other], "key": "k"})
    finished = {"status": "completed", "finished_at": timezone.now()}
    talk.turns.update(**finished)
    html = page(ada, talk)
    expect_links_to_lead_somewhere(ada, html, 4)
    ada.post(url, {"text": "Go on", "key": "l"})
    talk.turns.update(**finished)
    expect_links_to_lead_somewhere(ada, html, 4)


def test_the_anchor_is_at_the_first_message_of_the_user(ada, talk):
    note = {**user_message("Be brief."), "role": "developer"}
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hello."}],
    }
    turn = talk.open_turn([note, said, user_message("One?"), user_message("Two?")]).turn
    Turn.objects.update(status="completed", finished_at=timezone.now())
    html = page(ada, talk)
    expect_links_to_lead_somewhere(ada, html, 2)
    asked = html[html.index(f'id="message-{turn.pk}"') :]
    assert "Be brief." not in asked
    assert "One?" in asked
