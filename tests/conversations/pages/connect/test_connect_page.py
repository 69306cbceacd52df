"""The page *Connect an app*: its token, and its texts for clients."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from conversations.models import AccessToken
from conversations.models.access_token import Scope
from conversations.pages.connect.snippets import GROUPS
from tests.conversations.scene import a_model, a_user, signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

PAGE = reverse("connect")


@pytest.fixture
def ada() -> User:
    return a_user("ada")


@pytest.fixture
def web(ada: User) -> Client:
    return signed_in(ada)


def text_of(answer: Any) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", answer.content.decode()))


def test_the_page_needs_a_person():
    assert Client().get(PAGE).status_code == 302


def test_it_has_twenty_texts_with_the_address_and_a_model(web: Client):
    name = a_model().public_name
    shown = text_of(web.get(PAGE))
    snippets = [each for group in GROUPS for each in group.snippets]
    assert len(snippets) >= 20
    assert len({each.slug for each in snippets}) == len(snippets)
    assert shown.count("http://testserver") > len(snippets)
    assert f'model="{name}"' in shown
    assert "%" not in shown.replace("100%", "")
    assert not AccessToken.objects.exists()


def test_it_makes_a_token_for_the_gateway_alone_and_shows_it_in_the_texts(
    web: Client, ada: User
):
    name = a_model().public_name
    answer = web.post(PAGE, {"label": "Editor", "model": name})
    assert answer.status_code == 200
    [row] = AccessToken.objects.filter(user=ada)
    assert (row.label, row.scopes) == ("Editor", [Scope.GATEWAY])
    token = answer.context["token"]
    assert AccessToken.objects.find(token) == row
    assert text_of(answer).count(token) >= 20
    assert token not in text_of(web.get(PAGE))


@pytest.mark.parametrize("fields", [{}, {"label": "x", "model": "none/such"}])
def test_bad_fields_make_no_token(web: Client, fields: dict[str, str]):
    a_model()
    assert web.post(PAGE, fields).status_code == 400
    assert not AccessToken.objects.exists()


def test_it_is_among_the_settings(web: Client):
    assert f'href="{PAGE}"' in web.get(reverse("tokens")).content.decode()
