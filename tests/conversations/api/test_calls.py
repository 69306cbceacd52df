"""The endpoints for questions, background calls and results from outside."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

from conversations.engine import background_store
from conversations.models import Attachment, Conversation, Question, ToolCall, Turn
from llm.wire.items import user_message
from tests.conversations.scene import a_user, program
from tools.execution.output import MAX_TEXT

pytestmark = pytest.mark.django_db

SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}}


@pytest.fixture
def ada():
    return a_user("ada")


@pytest.fixture
def waiting(ada):
    conversation = Conversation.objects.create(owner=ada)
    turn = conversation.open_turn([user_message("Send it")]).turn
    Turn.objects.filter(pk=turn.pk).update(status=Turn.Status.WAITING)
    return turn


def a_question(turn, call_id="c1", **fields):
    call = ToolCall.objects.create(
        turn=turn, call_id=call_id, name="send", state="awaiting_approval"
    )
    return Question.objects.create(
        tool_call=call,
        schema=SCHEMA,
        **{
            "kind": "approval",
            "arguments": {"to": "bob"},
            "expires_at": timezone.now() + timedelta(hours=1),
            **fields,
        },
    )


def say(user, question, **body):
    return program(user).post(
        f"/api/questions/{question.pk}/answer/", body, content_type="application/json"
    )


def test_open_questions_are_listed_for_permitted_users(ada, waiting):
    question = a_question(waiting)
    (listed,) = program(ada).get("/api/questions/").json()
    assert listed["id"] == question.pk
    assert listed["arguments"] == {"to": "bob"}
    assert listed["turn"] == waiting.pk
    assert program(a_user("eve")).get("/api/questions/").json() == []


def test_an_approval_lets_the_turn_go_on(ada, waiting):
    question = a_question(waiting)
    answer = say(ada, question, action="accept", arguments={"to": "carol"})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["state"], body["answer"]) == ("accepted", {"to": "carol"})
    assert body["arguments"] == {"to": "bob"}
    assert body["decided_by"] == "ada"
    waiting.refresh_from_db()
    assert waiting.status == Turn.Status.QUEUED


def test_a_turn_waits_until_the_last_of_its_questions_is_decided(ada, waiting):
    first, second = a_question(waiting), a_question(waiting, "c2")
    say(ada, first, action="decline")
    waiting.refresh_from_db()
    assert waiting.status == Turn.Status.WAITING
    say(ada, second, action="accept")
    waiting.refresh_from_db()
    assert waiting.status == Turn.Status.QUEUED


@pytest.mark.parametrize("schema", [{"properties": ["size"]}, ["size"], "size"])
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_a_form_of_an_older_version_whose_schema_is_none_is_closed(
    ada, waiting, schema, action
):
    question = a_question(waiting, kind="form", arguments=None)
    Question.objects.update(schema=schema)
    status = 400 if action == "accept" else 200
    assert say(ada, question, action=action).status_code == status


def test_fields_of_a_form_that_a_program_omits_have_their_defaults(ada, waiting):
    question = a_question(waiting, kind="form", arguments=None)
    size = {"type": "integer", "default": 3}
    question.schema = {"type": "object", "properties": {"to": {}, "size": size}}
    question.save()
    answer = say(ada, question, action="accept", content={"to": "bob"})
    assert answer.json()["answer"] == {"to": "bob", "size": 3}


def test_the_second_decision_gets_a_conflict(ada, waiting):
    question = a_question(waiting)
    say(ada, question, action="accept")
    late = say(ada, question, action="decline")
    assert late.status_code == 409
    assert late.json()["error"]["code"] == "already_decided"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "action"),
        ({"action": "maybe"}, "action"),
        ({"action": "accept", "arguments": {"to": 7}}, "arguments"),
        ({"action": "accept", "arguments": "all"}, "arguments"),
        ({"action": "accept", "reason": "so"}, "reason"),
        ({"action": "decline", "note": "x" * 501}, "note"),
    ],
)
def test_a_wrong_answer_is_refused_and_leaves_the_question_open(
    ada, waiting, body, param
):
    question = a_question(waiting)
    answer = say(ada, question, **body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    question.refresh_from_db()
    assert question.state == "open"


def test_other_users_may_not_decide(waiting):
    question = a_question(waiting)
    assert say(a_user("eve"), question, action="accept").status_code == 404


def test_a_question_put_to_a_group_is_for_its_members(ada, waiting):
    group = Group.objects.create(name="approvers")
    question = a_question(waiting, group=group)
    assert say(ada, question, action="accept").status_code == 404
    bob = a_user("bob")
    bob.groups.add(group)
    assert say(bob, question, action="accept").status_code == 200


def in_background(turn, **fields):
    return ToolCall.objects.create(
        turn=turn,
        call_id="c9",
        name="order",
        state="executing",
        blocking=False,
        accepted_at=timezone.now(),
        **fields,
    )


@pytest.fixture
def finished(waiting):
    Turn.objects.filter(pk=waiting.pk).update(status=Turn.Status.COMPLETED)
    return waiting


def test_calls_are_listed_with_what_became_of_them(ada, finished):
    in_background(finished, progress="half way")
    calls = program(ada).get(
        f"/api/conversations/{finished.conversation_id}/tool-calls/"
    )
    (call,) = calls.json()["results"]
    assert (call["state"], call["blocking"]) == ("executing", False)
    assert call["progress"] == "half way"


def test_calls_of_a_deleted_branch_are_not_listed(ada, finished):
    in_background(finished)
    Turn.objects.filter(pk=finished.pk).update(deleted_at=timezone.now())
    path = f"/api/conversations/{finished.conversation_id}/tool-calls/"
    assert program(ada).get(path).json()["results"] == []


def test_standing_approvals_are_filtered_by_tool(ada, waiting):
    decided = {"state": "accepted", "always": True, "decided_by": ada}
    question = a_question(waiting, **decided, decided_at=timezone.now())
    path = "/api/approvals/"
    (found,) = program(ada).get(path, {"name": "send"}).json()["results"]
    assert found["id"] == question.pk
    assert program(ada).get(path, {"name": "other"}).json()["results"] == []


def test_a_call_is_cancelled_by_its_owner_alone(ada, finished):
    call = in_background(finished)
    path = f"/api/tool-calls/{call.pk}/cancel/"
    assert program(a_user("eve")).post(path).status_code == 404
    assert program(ada).post(path).status_code == 202
    call.refresh_from_db()
    assert call.cancel_requested


@pytest.fixture
def address(settings):
    settings.PUBLIC_URL = "https://parley.test/"

    def address(call):
        return background_store.callback_url(call.pk).removeprefix(
            "https://parley.test"
        )

    return address


def post(client, path, **body):
    return client.post(path, body, content_type="application/json")


def test_a_result_is_posted_once_without_signing_in(client, finished, address):
    call = in_background(finished)
    assert post(client, address(call), output={"n": 42}).status_code == 204
    call.refresh_from_db()
    assert (call.state, call.output) == ("completed", '{"n":42}')
    again = post(client, address(call), output="other")
    assert again.status_code == 410
    assert again.json()["error"]["code"] == "call_over"
    call.refresh_from_db()
    assert call.output == '{"n":42}'
    assert call.late_at
    assert Turn.objects.filter(parent=finished).count() == 1


def test_the_rest_of_a_long_result_is_a_file_of_the_conversation(
    client, finished, address
):
    call, text = in_background(finished), "x" * (MAX_TEXT + 1)
    assert post(client, address(call), output=text).status_code == 204
    (file,) = Attachment.objects.filter(conversation=finished.conversation_id)
    assert (file.name, file.size) == ("c9.txt", len(text))


def test_a_failure_is_posted_as_one(client, finished, address):
    call = in_background(finished)
    assert post(client, address(call), error="out of stock").status_code == 204
    call.refresh_from_db()
    assert (call.state, call.error) == ("failed", "out of stock")
    assert call.output == "Error: out of stock"


@pytest.mark.parametrize("body", [{}, {"output": 1, "error": "x"}, {"result": 1}])
def test_a_callback_without_one_clear_result_is_refused(
    client, finished, address, body
):
    call = in_background(finished)
    assert post(client, address(call), **body).status_code == 400
    call.refresh_from_db()
    assert call.state == "executing"


@pytest.mark.parametrize("body", [{"output": 1}, {}])
def test_a_forged_callback_is_unknown_whatever_it_brings(
    client, finished, address, body
):
    call = in_background(finished)
    path = address(call)[:-3] + "xx/"
    assert post(client, path, **body).status_code == 404


def test_a_callback_for_a_deleted_call_learns_nothing_else(client, finished, address):
    call = in_background(finished)
    path = address(call)
    call.delete()
    assert post(client, path, output=1).status_code == 404
    assert post(client, path).status_code == 404


def test_without_an_address_of_our_own_there_is_no_callback(settings):
    settings.PUBLIC_URL = ""
    assert background_store.callback_url(1) == ""
