"""Temporary conversations: written, shown nowhere, erased."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.engine.maintenance.retention import erase_temporary
from conversations.models import (
    Conversation,
    Item,
    Participant,
    ShareLink,
    SignedInSession,
    Turn,
)
from conversations.models.search_document import SearchDocument
from conversations.requests.branches import restore_conversations
from conversations.search.index import index_pending
from conversations.search.results import find_conversations
from conversations.tools import get_history
from llm.wire.items import user_message
from tests.conversations.page_scene import ada, model, page_of, read, submitted, web
from tests.conversations.scene import a_finished_turn, signed_in
from tools.registry import Context

__all__ = ["ada", "model", "submitted", "web"]
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.fixture
def hush(web: Client) -> Conversation:
    """A temporary conversation, begun on the page."""
    web.get(reverse("chat"))
    web.post(reverse("chat"), {"text": "A secret plan", "temporary": "on"})
    row = Conversation.objects.get()
    assert row.is_temporary
    assert row.session
    Turn.objects.update(status=Turn.Status.COMPLETED)
    return row


def test_its_page_says_so(web: Client, hush: Conversation):
    assert "Temporary chat" in read(web.get(page_of(hush)))
    assert 'name="temporary"' not in web.get(page_of(hush)).content.decode()


@pytest.mark.parametrize(
    ("page", "body"),
    [
        ("share", {"audience": "signed_in", "kind": "snapshot"}),
        ("people", {"name": "grace", "role": "viewer"}),
    ],
)
def test_it_is_shared_with_nobody(
    web: Client, hush: Conversation, page: str, body: dict[str, str]
):
    address = reverse(page, args=[hush.pk])
    assert address not in web.get(page_of(hush)).content.decode()
    assert "temporary chat cannot be shared" in read(web.get(address))
    assert web.post(address, body).status_code == 400
    path = {"share": "shares", "people": "participants"}[page]
    rest = f"/api/conversations/{hush.pk}/{path}/"
    answer = web.post(rest, body, content_type="application/json")
    assert answer.status_code == 400
    assert not ShareLink.objects.exists()
    assert not Participant.objects.exists()


@pytest.mark.parametrize("is_indexed", [True, False])
def test_it_is_in_no_list_no_search_and_no_tool(
    web: Client, hush: Conversation, ada: Any, is_indexed: bool
):
    a_finished_turn(hush, "A secret plan", "For the garden")
    if is_indexed:
        list(index_pending())
        assert not Turn.objects.filter(is_indexed=False).exists()
    assert not SearchDocument.objects.exists()
    assert not find_conversations(ada, "secret").conversations
    assert "secret" not in read(web.get(reverse("conversation-list")))
    assert not get_history(Context(user_id=ada.pk), "secret")
    assert not get_history(Context(user_id=ada.pk))


def test_signing_out_ends_it(web: Client, hush: Conversation):
    web.post(reverse("logout"))
    hush.refresh_from_db()
    assert hush.deleted_at
    list(erase_temporary())
    assert not Conversation.objects.exists()
    assert not Item.objects.exists()


def test_one_that_has_ended_cannot_be_restored(
    web: Client, hush: Conversation, ada: Any
):
    web.post(reverse("logout"))
    later = signed_in(ada)
    assert restore_conversations(ada, [hush.pk]) == 0
    page = later.get("/", {"deleted": hush.pk}).content.decode()
    assert reverse("restore-conversation", args=[hush.pk]) not in page


def test_a_copy_of_it_ends_with_it(web: Client, hush: Conversation):
    turn = hush.turns.get()
    web.post(reverse("fork", args=[hush.pk, turn.pk]))
    copy = Conversation.objects.exclude(pk=hush.pk).get()
    assert copy.is_temporary
    web.post(reverse("logout"))
    list(erase_temporary())
    assert not Conversation.objects.exists()


def test_signing_out_elsewhere_does_not(hush: Conversation, ada: Any):
    other = signed_in(ada)
    other.get(reverse("chat"))
    other.post(reverse("logout"))
    hush.refresh_from_db()
    assert hush.deleted_at is None


def test_the_end_of_its_session_from_another_browser_ends_it(hush: Conversation):
    session = SignedInSession.objects.get()
    session.end()
    list(erase_temporary())
    assert not Conversation.objects.exists()


def test_after_a_day_it_is_erased_and_others_stay(hush: Conversation, ada: Any):
    kept = Conversation.objects.create(owner=ada)
    list(erase_temporary())
    assert Conversation.objects.count() == 2
    old = timezone.now() - timedelta(hours=25)
    Conversation.objects.update(created_at=old)
    list(erase_temporary())
    assert list(Conversation.objects.all()) == [kept]


def test_what_still_runs_is_stopped_first(hush: Conversation):
    opened = hush.open_turn([user_message("And then?")]).turn
    hush.delete_softly()
    list(erase_temporary())
    opened.refresh_from_db()
    assert opened.cancel_requested
    Turn.objects.update(status=Turn.Status.CANCELLED)
    list(erase_temporary())
    assert not Conversation.objects.exists()
