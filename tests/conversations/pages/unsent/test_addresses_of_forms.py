"""A person who opens the address of a form, instead of pressing its button."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from conversations.models import Conversation
from tests.conversations.page_scene import ada, conversation, model, page_of, read, web
from tests.conversations.scene import PASSWORD, a_finished_turn

__all__ = ["ada", "conversation", "model", "web"]
pytestmark = pytest.mark.django_db

BROWSER = {"Accept": "text/html,*/*;q=0.8"}


def test_a_button_pressed_after_the_session_ended_leads_back(conversation):
    turn = a_finished_turn(conversation)
    browser = Client(headers=BROWSER)
    delete = reverse("delete-branch", args=[conversation.pk, turn.pk])
    sign_in = browser.post(delete)["Location"]
    page = browser.post(sign_in, {"username": "ada", "password": PASSWORD}, follow=True)
    assert page.redirect_chain[-1][0] == delete
    assert "Nothing was changed" in read(page)
    assert f'href="{page_of(conversation)}"' in page.content.decode()
    assert Conversation.objects.get().turns.exists()


def test_pages_of_other_forms_lead_to_the_chats(web: Client):
    page = web.get(reverse("end-other-sessions"), headers=BROWSER)
    assert page.status_code == 405
    assert page["Allow"] == "POST"
    assert "To the chats" in read(page)


@pytest.mark.parametrize(
    ("method", "accept", "path"),
    [
        ("get", "*/*", "/account/sessions/end-others/"),
        ("head", BROWSER["Accept"], "/account/sessions/end-others/"),
        ("put", BROWSER["Accept"], "/account/sessions/end-others/"),
    ],
)
def test_programs_get_no_page(web: Client, method: str, accept: str, path: str):
    answer = getattr(web, method)(path, headers={"Accept": accept})
    assert answer.status_code == 405
    assert answer.content == b""
