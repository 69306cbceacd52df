from __future__ import annotations

import html
import json
from datetime import timedelta

import pytest
from django.contrib.admin.utils import quote
from django.contrib.auth.models import Group
from django.urls import reverse
from django.utils import timezone

from conversations.models import Conversation, Item, Question
from llm.wire.items import user_message
from tests.conversations.scene import a_user, signed_in, staff
from tools.models import Tool

pytestmark = pytest.mark.django_db
CALLS = reverse("admin:conversations_toolcall_changelist")
QUESTIONS = reverse("admin:conversations_question_changelist")


@pytest.fixture
def call():
    turn = (
        Conversation.objects.create(owner=a_user("ada"))
        .open_turn([user_message("Pay it back")])
        .turn
    )
    payload = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "calculator",
        "arguments": '{"euros": 100, "note": "<b>"}',
        "status": "completed",
    }
    Item.of(turn, 1, payload, origin=Item.Origin.OUTPUT).save()
    return turn.tool_calls.create(
        call_id="call_1", name="calculator", state="completed", output='{"ok": true}'
    )


@pytest.fixture
def question(call):
    return Question.objects.create(
        tool_call=call,
        kind="approval",
        state="accepted",
        arguments={"euros": 100, "note": "<b>"},
        answer={"euros": 50, "note": "<b>"},
        group=Group.objects.create(name="cashiers"),
        decided_by=a_user("bob"),
        decided_at=timezone.now(),
        expires_at=timezone.now() + timedelta(hours=1),
        note="half of it",
    )


def page(row) -> str:
    name = f"admin:conversations_{row._meta.model_name}_change"
    return reverse(name, args=[quote(str(row.pk))])


def shown(client, url: str, **query: str) -> str:
    answer = client.get(url, query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_page_of_a_call_shows_arguments_and_output(admin_client, call, question):
    text = shown(admin_client, page(call))
    assert "&quot;note&quot;: &quot;&lt;b&gt;&quot;" in text
    assert "&quot;ok&quot;: true" in text
    assert page(question) in text


def test_the_page_of_a_question_shows_the_edits_and_their_author(
    admin_client, question
):
    text = html.unescape(shown(admin_client, page(question)))
    assert '<del>-   "euros": 100,' in text
    assert '<ins>+   "euros": 50,' in text
    assert "bob" in text
    assert "half of it" in text
    assert "cashiers" in text


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"state": "open", "answer": None}, "–"),
        ({"answer": {"euros": 100, "note": "<b>"}}, "unchanged"),
        ({"kind": "form", "schema": {"type": "object"}, "answer": {"a": 7}}, '"a": 7'),
        ({"kind": "form", "answer": None, "schema": None}, "null"),
    ],
)
def test_every_question_can_be_shown(admin_client, question, fields, expected):
    Question.objects.filter(pk=question.pk).update(**fields)
    assert expected in html.unescape(shown(admin_client, page(question)))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"state__exact": "completed"}, True),
        ({"state__exact": "failed"}, False),
        ({"tool": "calculator"}, True),
        ({"tool": "weather_demo"}, False),
        ({"kind_of_tool": "python"}, True),
        ({"kind_of_tool": "http"}, False),
        ({"blocking__exact": "1"}, True),
        ({"blocking__exact": "0"}, False),
        ({"q": "call_1"}, True),
    ],
)
def test_calls_are_filtered(admin_client, call, query, found):
    assert (page(call) in shown(admin_client, CALLS, **query)) == found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"state__exact": "accepted"}, True),
        ({"state__exact": "open"}, False),
        ({"kind__exact": "form"}, False),
        ({"tool": "calculator"}, True),
        ({"kind_of_tool": "mcp"}, False),
        ({"q": "bob"}, True),
    ],
)
def test_questions_are_filtered(admin_client, question, query, found):
    assert (page(question) in shown(admin_client, QUESTIONS, **query)) == found


def test_both_are_read_only_and_guarded(question):
    eve = signed_in(staff("eve", "view_question", "view_toolcall"))
    assert page(question) not in shown(eve, QUESTIONS)
    assert eve.get(page(question)).status_code == 302  # as if it were not there
    ida = signed_in(staff("ida", "inspect_turn", "change_question", "change_toolcall"))
    for row in (question, question.tool_call):
        assert page(row) in shown(ida, QUESTIONS if row is question else CALLS)
        assert ida.post(page(row), {"state": "declined"}).status_code == 403
    question.refresh_from_db()
    assert question.state == "accepted"


def test_tools_of_providers_are_no_choice_of_the_filter(admin_client):
    Tool.objects.create(name="web", kind="hosted", definition={"type": "web_search"})
    text = shown(admin_client, CALLS)
    assert "?tool=calculator" in text
    assert "?tool=web" not in text.replace("?tool=weather_demo", "")
    assert json.dumps("web") not in text
