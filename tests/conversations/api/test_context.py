"""Items of a conversation and its context, over REST and over the pages' forms."""

from __future__ import annotations

import pytest

from conversations.models import Conversation, Item
from conversations.turns.compaction import CHANGED_AT, Plan, compaction_item
from tests.conversations.scene import (
    a_finished_turn,
    a_model,
    a_user,
    program,
    signed_in,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

SUMMARY = [{"type": "summary_text", "text": "They greeted."}]


@pytest.fixture
def conversation():
    model = a_model(context_window=1000)
    conversation = Conversation.objects.create(
        owner=a_user("ada"), language_model=model
    )
    first = a_finished_turn(conversation)
    second = a_finished_turn(conversation, "And?", "That is all.")
    through = {"turn": first.pk, "position": 1}
    plan = Plan(through=through, messages=2, summary="", items=())
    item = compaction_item(plan, "They greeted.")
    Item.of(second, 2, item, origin=Item.Origin.OUTPUT).save()
    return conversation


def rows(conversation):
    return Item.objects.filter(turn__conversation=conversation).order_by("pk")


def url(conversation, item):
    return f"/api/conversations/{conversation.pk}/items/{item['id']}/"


def test_a_summary_is_read_edited_undone_and_used_again(conversation):
    client = program(conversation.owner)
    context = f"/api/conversations/{conversation.pk}/context/"
    item = rows(conversation).get(type="compaction").payload
    before = client.get(context).json()
    assert before["compaction"] == client.get(url(conversation, item)).json() == item
    assert (before["context_window"], before["compacts_above"]) == (1000, 750)
    edited = client.patch(
        url(conversation, item), {"summary": "Hello"}, "application/json"
    ).json()
    assert edited["summary"] == [{"type": "summary_text", "text": "Hello"}]
    assert edited[CHANGED_AT]
    client.patch(url(conversation, item), {"undone": True}, "application/json")
    undone = client.get(context).json()
    assert undone["compaction"] is None
    assert not undone["is_measured"]
    client.patch(url(conversation, item), {"undone": False}, "application/json")
    assert client.get(context).json()["compaction"]["summary"] == edited["summary"]
    rewritten = Conversation.objects.get(pk=conversation.pk).rewritten
    assert rewritten == 3  # so that all processes read the items again


def test_a_message_is_pinned_over_rest_and_by_the_pages_form(conversation):
    message = rows(conversation).filter(type="message").first().payload
    client = program(conversation.owner)
    patch = {"pinned": True}
    pinned = client.patch(url(conversation, message), patch, "application/json").json()
    assert pinned == {**message, "parley:pinned": True}
    page = f"/chat/{conversation.pk}/"
    web = signed_in(conversation.owner)
    assert 'aria-pressed="true"' in web.get(page).content.decode()
    answer = web.post(f"{page}items/{message['id']}/", {"pinned": "false"})
    assert answer.status_code == 302
    assert rows(conversation).filter(type="message").first().payload == message


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("compaction", {"pinned": True}),
        ("compaction", {"summary": ""}),
        ("compaction", {"summary": "a\0b"}),
        ("compaction", {"summary": "x" * 100_001}),
        ("compaction", {"undone": "maybe"}),
        ("compaction", {"undone": "yes"}),
        ("compaction", {"undone": 1}),
        ("compaction", {"undone": None}),
        ("message", {"pinned": "on"}),
        ("message", {"summary": "x"}),
        ("message", {"undone": True}),
        ("message", {"text": "x"}),
    ],
)
def test_a_change_that_does_not_fit_the_item_is_refused_by_name(
    conversation, kind, change
):
    item = rows(conversation).filter(type=kind).first().payload
    client = program(conversation.owner)
    answer = client.patch(url(conversation, item), change, "application/json")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == next(iter(change))
    web = signed_in(conversation.owner)
    if "text" not in change:
        form = {name: str(value) for name, value in change.items()}
        page = f"/chat/{conversation.pk}/items/{item['id']}/"
        assert web.post(page, form).status_code == 400
    assert rows(conversation).filter(type=kind).first().payload == item


def test_a_summary_that_leaves_the_model_no_room_is_refused_with_its_bound(
    conversation,
):
    """The window has 1,000 tokens, of which a summary may take up half."""
    item = rows(conversation).get(type="compaction").payload
    too_long = "All about tea. " * 140
    client = program(conversation.owner)
    patch = {"summary": too_long}
    answer = client.patch(url(conversation, item), patch, "application/json")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "summary"
    assert "524 tokens" in error["message"]
    assert "500" in error["message"]
    page = f"/chat/{conversation.pk}/items/{item['id']}/"
    web = signed_in(conversation.owner)
    refused = web.post(page, {"summary": too_long})
    text = refused.content.decode()
    assert refused.status_code == 400
    assert "500, which are about 2000 characters" in text
    assert too_long.strip() in text  # what the person wrote can be shortened and sent
    assert rows(conversation).get(type="compaction").payload == item
    assert web.post(page, {"summary": too_long[:1900]}).status_code == 302
    conversation.language_model.context_window = None
    conversation.language_model.save()
    assert web.post(page, patch).status_code == 302


def test_others_find_neither_items_nor_context(conversation):
    item = rows(conversation).first().payload
    eve = a_user("eve")
    for path in (
        url(conversation, item),
        f"/api/conversations/{conversation.pk}/context/",
    ):
        assert program(eve).get(path).status_code == 404
    page = f"/chat/{conversation.pk}/items/{item['id']}/"
    assert signed_in(eve).post(page, {"pinned": "true"}).status_code == 404
    assert (
        program(conversation.owner).get(url(conversation, {"id": "msg_no"})).status_code
        == 404
    )
