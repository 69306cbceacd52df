"""The page of a whole conversation for paper."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations.models import Conversation, Item, Participant, Turn
from conversations.turns.branches import place_beside
from llm.wire.items import message, user_message
from tests.conversations.page_scene import (
    CALL,
    THOUGHT,
    a_turn,
    ada,
    conversation,
    model,
    page_of,
    submitted,
    web,
)
from tests.conversations.scene import a_finished_turn, a_user, signed_in

__all__ = ["ada", "conversation", "model", "submitted", "web"]

pytestmark = pytest.mark.django_db

LONG = 100_000  # characters of an answer


def address(row: Conversation) -> str:
    return reverse("print-conversation", args=[row.pk])


def printed(web: Client, row: Conversation) -> str:
    answer: Any = web.get(address(row))
    assert answer.status_code == 200
    return b"".join(answer.streaming_content).decode()


def numbered(length: int) -> str:
    """Paragraphs that differ, of `length` characters or a little more."""
    paragraphs = [f"Paragraph {n} of the report." for n in range(length // 25)]
    return "\n\n".join(paragraphs)


@pytest.mark.slow
@pytest.mark.smoke
def test_all_turns_and_all_of_a_long_answer_are_printed(
    web: Client, conversation: Conversation
):
    long = numbered(LONG)
    assert len(long) >= LONG
    for number in range(120):
        answer = long if number == 7 else f"Answer number {number}."
        a_finished_turn(conversation, f"Question number {number}?", answer)
    page = printed(web, conversation)
    places = [page.index(f"Question number {number}?") for number in range(120)]
    assert places == sorted(places)
    assert page.count("<article") == 120
    parts = [f"Paragraph {n} of the report." for n in range(LONG // 25)]
    assert [part for part in parts if page.count(part) != 1] == []
    assert page.count("Answer number ") == 119
    assert page.rstrip().endswith("</html>")


def test_the_page_is_made_while_it_is_sent(
    web: Client, conversation: Conversation, django_assert_num_queries: Any
):
    for number in range(30):
        a_finished_turn(conversation, f"Question number {number}?")
    printed(web, conversation)  # a process reads its announcements once
    pieces = iter(web.get(address(conversation)).streaming_content)
    with django_assert_num_queries(0):
        head = next(pieces)
    assert b"</head>" in head
    assert b"Question number" not in head
    assert next(pieces).count(b"Question number") == 1


def test_thoughts_are_closed_and_calls_are_one_line_without_controls(
    web: Client, conversation: Conversation
):
    a_turn(conversation, "completed", THOUGHT, CALL, message("assistant", "`Mild`."))
    page = printed(web, conversation)
    main = page[page.index("<main") : page.index("</main>")]
    assert '<details class="thought"' in main
    assert "<details open" not in main
    assert "weather_demo" in main
    assert "<code>Mild</code>" in main
    for control in ("<form", "<button", "<textarea", "<input", "<script"):
        assert control not in main


def test_the_branch_that_the_reader_looks_at_is_printed(
    web: Client, conversation: Conversation
):
    first = a_finished_turn(conversation, "In Paris?", "Rain.")
    beside = conversation.open_turn(
        [user_message("In Rome?")], **place_beside(first)
    ).turn
    Item.of(beside, 1, message("assistant", "Sun."), origin=Item.Origin.OUTPUT).save()
    Turn.objects.filter(pk=beside.pk).update(status="completed")
    page = printed(web, conversation)
    assert "In Rome?" in page
    assert "In Paris?" not in page
    web.post(reverse("show-branch", args=[conversation.pk, first.pk]))
    page = printed(web, conversation)
    assert "In Paris?" in page
    assert "In Rome?" not in page


def test_those_who_see_the_conversation_may_print_it_and_nobody_else(
    web: Client, conversation: Conversation
):
    a_finished_turn(conversation, "For us only?")
    bea, eve = a_user("bea"), a_user("eve", is_staff=True, is_superuser=True)
    Participant.objects.create(
        conversation=conversation,
        user=bea,
        name=bea.username,
        role="viewer",
        accepted_at=timezone.now(),
    )
    assert "For us only?" in printed(signed_in(bea), conversation)
    assert signed_in(eve).get(address(conversation)).status_code == 404
    assert Client().get(address(conversation)).status_code == 302
    conversation.delete_softly()
    assert web.get(address(conversation)).status_code == 404


def test_the_menu_and_the_export_page_lead_to_it(
    web: Client, conversation: Conversation
):
    for page in (
        page_of(conversation),
        reverse("export-conversation", args=[conversation.pk]),
    ):
        assert f'href="{address(conversation)}"' in web.get(page).content.decode()
