"""An open page behind a live link asks whether it still shows the newest state."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from conversations.access import sharing
from conversations.models import Conversation, Item, ShareLink, Turn
from llm.wire.items import message
from tests.conversations.page_scene import THOUGHT, ada, conversation, model
from tests.conversations.scene import a_finished_turn, a_user, signed_in
from tests.conversations.sharing.test_links import (
    a_link,
    add,
    address,
    anything_goes,
)

__all__ = ["ada", "anything_goes", "conversation", "model"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


def look(link: ShareLink, state: str) -> Any:
    return Client().get(address(link), {"state": state})


def opened(link: ShareLink) -> str:
    return Client().get(address(link)).text


def state_of(page: str) -> str:
    found = re.search(r'data-state="(\w+)"', page)
    assert found
    return found[1]


@pytest.fixture
def turn(conversation: Conversation) -> Turn:
    return a_finished_turn(conversation)


def test_nothing_is_sent_while_the_page_shows_the_newest_state(turn, conversation):
    link = a_link(conversation, kind="live")
    state = state_of(opened(link))
    answer = look(link, state)
    assert (answer.status_code, answer.content) == (204, b"")
    add(turn, message("assistant", "more"))
    answer = look(link, state)
    assert answer.status_code == 200
    assert "more" in answer.text
    assert look(link, state_of(answer.text)).status_code == 204


def test_words_of_an_unfinished_answer_are_a_new_state(turn, conversation):
    link = a_link(conversation, kind="live")
    running = {"status": "in_progress", "finished_at": None}
    Turn.objects.filter(pk=turn.pk).update(
        **running, partial=[message("assistant", "One")]
    )
    state = state_of(opened(link))
    Turn.objects.filter(pk=turn.pk).update(partial=[message("assistant", "One two")])
    assert "One two" in look(link, state).text


def test_what_the_link_does_not_show_is_no_new_state(turn, conversation):
    link = a_link(conversation, kind="live")
    state = state_of(opened(link))
    add(turn, THOUGHT)
    assert look(link, state).status_code == 204
    open_to_thoughts = a_link(conversation, kind="live", shows_reasoning=True)
    before = state_of(opened(open_to_thoughts))
    Item.objects.filter(type="reasoning").delete()
    assert look(open_to_thoughts, before).status_code == 200


def test_looks_are_no_views_and_take_none_from_others(turn, conversation, monkeypatch):
    monkeypatch.setattr(sharing, "VIEWS_PER_MINUTE", 2)
    link = a_link(conversation, kind="live")
    state = state_of(opened(link))
    far = Client(REMOTE_ADDR="192.0.2.79")
    looks = [far.get(address(link), {"state": state}) for _ in range(3)]
    assert [look.status_code for look in looks] == [204, 204, 429]
    assert "Retry-After" in looks[2]
    assert far.get(address(link)).status_code == 200
    link.refresh_from_db()
    assert link.views == 2


def test_looks_of_who_is_signed_in_take_nothing_from_them(turn, conversation, settings):
    settings.USER_REQUESTS_PER_MINUTE = 2
    link = a_link(conversation, kind="live")
    state = state_of(opened(link))
    web = signed_in(a_user("grace"))
    looks = [web.get(address(link), {"state": state}) for _ in range(3)]
    assert [look.status_code for look in looks] == [204, 204, 429]
    assert 0 < int(looks[2]["Retry-After"]) <= 30
    assert [web.get(address(link)).status_code for _ in range(3)] == [200, 200, 429]


def test_an_ended_link_is_ended_for_open_pages(turn, conversation):
    link = a_link(conversation, kind="live")
    state = state_of(opened(link))
    link.revoke()
    assert look(link, state).status_code == 404
