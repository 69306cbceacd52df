"""Questions to people: cards that are decided once, by a permitted user."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from conversations import engine
from conversations.models import Conversation, Question, ToolCall, Turn
from llm.wire.items import message
from tests.conversations.page_scene import (
    CALL,
    a_turn,
    ada,
    conversation,
    model,
    page_of,
    read,
    shown,
    submitted,
    web,
)
from tests.conversations.scene import a_user, signed_in
from tools.models import Tool

__all__ = ["ada", "conversation", "model", "submitted", "web"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 2}},
    "required": ["city"],
}
SCRIPT = {"X-Requested-With": "fetch"}


@pytest.fixture(autouse=True)
def notified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the questions whose decision the engine was notified of."""
    ids: list[str] = []
    monkeypatch.setattr(
        engine, "notify_decision", lambda question: ids.append(question.pk)
    )
    return ids


@pytest.fixture
def turn(conversation: Conversation) -> Turn:
    answer = message("assistant", "If I may.")
    turn = a_turn(conversation, Turn.Status.WAITING, answer, CALL)
    turn.tool_calls.create(
        call_id="call_1", name="weather_demo", state=ToolCall.State.AWAITING_APPROVAL
    )
    return turn


def create_question(turn: Turn, kind: str = "approval", **fields: Any) -> Question:
    return Question.objects.create(
        **{
            "tool_call": turn.tool_calls.get(),
            "kind": kind,
            "message": "It costs a little.",
            "schema": CITY,
            "arguments": {"city": "Paris"} if kind == "approval" else None,
            "expires_at": timezone.now() + timedelta(hours=1),
            **fields,
        }
    )


def url_of(question: Question) -> str:
    return reverse("question", args=[question.pk])


def test_a_turn_that_waits_shows_what_for(
    web: Client, conversation: Conversation, turn: Turn
):
    question = create_question(turn)
    words = read(web.get(page_of(conversation)))
    assert "May weather_demo run?" in words
    assert "It costs a little." in words
    assert '"city": "Paris"' in words
    assert "Decline Approve" in words
    assert "weather_demo Paris Awaiting approval" in words
    assert "Waiting for a decision" in words
    page = web.get(page_of(conversation)).content.decode()
    assert f'action="{url_of(question)}"' in page
    assert reverse("stop", args=[conversation.pk, turn.pk]) in page


@pytest.mark.parametrize(("approval", "is_said"), [("first", True), ("always", False)])
def test_an_approval_that_covers_the_chat_says_so(
    web: Client, turn: Turn, approval: str, is_said: bool
):
    Tool.objects.filter(name="weather_demo").update(approval=approval)
    create_question(turn)
    words = read(shown(web, turn))
    assert ("run in this chat without asking" in words) == is_said


def test_a_form_shows_its_fields(web: Client, turn: Turn):
    create_question(turn, "form")
    page = shown(web, turn).content.decode()
    assert 'name="content-city"' in page
    assert "weather_demo asks" in read(shown(web, turn))


@pytest.mark.parametrize(
    ("sent", "state", "answer"),
    [
        ({"action": "accept"}, "accepted", {"city": "Paris"}),
        (
            {"action": "accept", "arguments": '{"city": "Oslo"}', "note": "Nearer."},
            "accepted",
            {"city": "Oslo"},
        ),
        ({"action": "decline", "arguments": "{broken", "note": "No"}, "declined", None),
    ],
)
def test_a_decision_lets_the_turn_go_on(
    web: Client,
    conversation: Conversation,
    turn: Turn,
    notified: list[str],
    submitted: list[str],
    sent: dict[str, str],
    state: str,
    answer: Any,
):
    question = create_question(turn)
    response = web.post(url_of(question), sent)
    assert response.headers["Location"] == f"{page_of(conversation)}#turn-{turn.pk}"
    question.refresh_from_db()
    assert (question.state, question.answer) == (state, answer)
    assert question.decided_by == conversation.owner
    assert question.note == sent.get("note", "")
    turn.refresh_from_db()
    assert turn.status == Turn.Status.QUEUED
    assert (notified, submitted) == ([question.pk], [turn.pk])


def test_the_call_shows_the_decision_later(web: Client, turn: Turn):
    question = create_question(turn)
    sent = {"action": "accept", "arguments": '{"city": "Oslo"}', "note": "Nearer"}
    web.post(url_of(question), sent)
    assert "Approved by ada with other arguments: Nearer" in read(shown(web, turn))


@pytest.mark.parametrize(
    ("arguments", "given", "words"),
    [
        ({"city": "Oslo"}, '"Oslo"', "Approved by ada with other arguments."),
        ({"city": "Paris"}, '"Paris"', "Approved by ada."),
    ],
)
def test_the_card_shows_what_the_tool_runs_with(
    web: Client, turn: Turn, arguments: Any, given: str, words: str
):
    question = create_question(turn)
    sent = {"action": "accept", "arguments": json.dumps(arguments)}
    response = web.post(url_of(question), sent, headers=SCRIPT)
    assert given in read(response)
    assert words in read(response)
    assert ('"Paris"' in read(response)) == (given == '"Paris"')


def test_the_card_shows_numbers_as_the_model_wrote_them(web: Client, turn: Turn):
    item = turn.items.get(type="function_call")
    item.payload["arguments"] = '{"city":"Rome","price":1.10,"n":1e5}'
    item.save()
    written = {"city": "Rome", "price": 1.1, "n": 1e5}
    question = create_question(turn, arguments=written)
    page = web.get(url_of(question)).content.decode()
    assert page.count(">1.10<") == page.count(">1e5<") == 1
    assert "&quot;price&quot;: 1.10," in page  # to be edited
    web.post(url_of(question), {"action": "accept"})
    assert "1.10" in web.get(url_of(question)).content.decode()


def test_a_call_without_arguments_is_approved_as_it_is(web: Client, turn: Turn):
    question = create_question(turn, arguments=None, schema=None)
    response = web.post(url_of(question), {"action": "accept"}, headers=SCRIPT)
    assert "Approved by ada." in read(response)


def test_a_form_is_answered(web: Client, turn: Turn, notified: list[str]):
    question = create_question(turn, "form")
    web.post(url_of(question), {"action": "accept", "content-city": "Rome"})
    question.refresh_from_db()
    assert (question.state, question.answer) == ("accepted", {"city": "Rome"})
    assert notified == [question.pk]


@pytest.mark.parametrize(
    ("kind", "sent", "problem"),
    [
        ("approval", {"arguments": "{"}, "The arguments are not valid JSON (line 1)."),
        ("approval", {"arguments": "[]"}, "The arguments must be a JSON object."),
        ("approval", {"arguments": '{"city": "X"}'}, "shorter than 2"),
        ("approval", {"arguments": "{}"}, "The arguments do not fit:"),
        ("form", {"content-city": "X"}, "at least 2 characters"),
        ("form", {}, "This field is required."),
    ],
)
def test_an_invalid_answer_is_reported_and_stays_in_the_form(
    web: Client, turn: Turn, kind: str, sent: dict[str, str], problem: str
):
    question = create_question(turn, kind)
    for headers in ({}, SCRIPT):
        data = {"action": "accept", **sent}
        response = web.post(url_of(question), data, headers=headers)
        assert response.status_code == 400
        assert problem in read(response)
        assert all(text in read(response) for text in sent.values() if kind != "form")
    question.refresh_from_db()
    assert question.state == "open"


def test_a_form_is_dismissed_without_a_word_on_it(
    web: Client, turn: Turn, notified: list[str]
):
    question = create_question(turn, "form")
    web.post(url_of(question), {"action": "cancel"}, headers=SCRIPT)
    question.refresh_from_db()
    assert (question.state, notified) == ("cancelled", [question.pk])
    assert "Dismissed by ada." in read(web.get(url_of(question)))


def test_leave_to_run_is_not_dismissed(web: Client, turn: Turn):
    question = create_question(turn)
    assert web.post(url_of(question), {"action": "cancel"}).status_code == 400
    question.refresh_from_db()
    assert question.state == "open"


def test_enter_sends_a_form_and_never_declines_it(web: Client, turn: Turn):
    """A browser takes the first button for it."""
    form = create_question(turn, "form")
    page = web.get(url_of(form), headers=SCRIPT).content.decode()
    assert re.findall(r'value="(accept|decline|cancel)"', page)[0] == "accept"


@pytest.mark.parametrize("kind", ["approval", "sign_in"])
def test_enter_in_the_note_decides_no_approval(web: Client, turn: Turn, kind: str):
    """A browser presses the first button for it; a disabled one presses nothing."""
    question = create_question(turn, kind)
    page = web.get(url_of(question), headers=SCRIPT).content.decode()
    first = re.findall(r"<button[^>]*>", page)[0]
    assert " disabled" in first
    assert "decline" in page


def test_a_script_gets_the_current_card_back(web: Client, turn: Turn):
    question = create_question(turn)
    card = web.get(url_of(question), headers=SCRIPT).content.decode()
    assert card.strip().startswith("<section")
    response = web.post(url_of(question), {"action": "decline"}, headers=SCRIPT)
    assert response.status_code == 200
    assert "Declined by ada." in read(response)
    assert 'data-state="declined"' in response.content.decode()


def test_the_second_decision_is_reported_as_too_late(
    web: Client, turn: Turn, notified: list[str]
):
    question = create_question(turn)
    web.post(url_of(question), {"action": "decline"})
    late = web.post(url_of(question), {"action": "accept"})
    assert late.status_code == 409
    words = read(late)
    assert "The question was already decided; your answer was not used." in words
    assert "Declined by ada." in words
    assert notified == [question.pk]


def test_two_at_the_same_moment_decide_once(
    web: Client, turn: Turn, monkeypatch: pytest.MonkeyPatch
):
    question = create_question(turn)
    decide = Question.decide

    def slower(self: Question, *args: Any, **kwargs: Any) -> bool:
        decide(Question.objects.get(pk=self.pk), None, "decline")
        return decide(self, *args, **kwargs)

    monkeypatch.setattr(Question, "decide", slower)
    late = web.post(url_of(question), {"action": "accept"}, headers=SCRIPT)
    assert late.status_code == 409
    assert "your answer was not used" in read(late)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("expired", "The question was not answered in time."),
        ("cancelled", "No longer needed."),
    ],
)
def test_a_closed_question_shows_why(web: Client, turn: Turn, state: str, words: str):
    question = create_question(turn, state=state)
    assert words in read(web.get(url_of(question)))
    assert "Approve" not in read(web.get(url_of(question)))


def test_whose_question_it_is_not_sees_nothing(turn: Turn):
    question = create_question(turn)
    eve = signed_in(a_user("eve"))
    assert eve.get(url_of(question)).status_code == 404
    assert eve.post(url_of(question), {"action": "accept"}).status_code == 404
    assert Client().get(url_of(question)).status_code == 302


def test_deleting_a_conversation_deletes_its_questions(web: Client, turn: Turn):
    question = create_question(turn)
    turn.conversation.delete_softly()
    assert web.get(url_of(question)).status_code == 404


def test_a_group_decides_in_the_place_of_the_user(
    web: Client, conversation: Conversation, turn: Turn, submitted: list[str]
):
    group = Group.objects.create(name="Treasurers")
    question = create_question(turn, group=group)
    words = read(web.get(page_of(conversation)))
    assert "Waiting for the group Treasurers to decide." in words
    assert "Approve" not in words
    refused = web.post(url_of(question), {"action": "accept"})
    assert refused.status_code == 403
    assert "You may not decide this question; your answer was not used." in read(
        refused
    )
    Conversation.objects.update(title="Secret plan")
    bob = a_user("bob")
    bob.groups.add(group)
    treasurer = signed_in(bob)
    assert "1 waiting for your decision" in read(treasurer.get("/"))
    page_text = read(treasurer.get(reverse("questions")))
    assert "ada asks: may weather_demo run?" in page_text
    assert "Secret" not in page_text
    done = treasurer.post(url_of(question), {"action": "accept"})
    assert done.headers["Location"] == reverse("questions")
    assert submitted == [turn.pk]
    assert "Nothing waits for you." in read(treasurer.get(reverse("questions")))
    assert "Approved by bob." in read(shown(web, turn))


def test_text_of_a_model_is_escaped(web: Client, turn: Turn):
    create_question(
        turn, message="<script>a()</script>", arguments={"city": "</pre><img src=x>"}
    )
    page = shown(web, turn).content.decode()
    assert "<script" not in page
    assert "<img" not in page
