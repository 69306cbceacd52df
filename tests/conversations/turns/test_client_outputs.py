"""Outputs that a client posts: each call is answered once; errors explain why."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from conversations.input.client_outputs import (
    CallAbandoned,
    CallAlreadyAnswered,
    ClientCalls,
    OutputsMissing,
)
from conversations.models import Conversation
from llm.models import LanguageModel, Provider
from llm.wire.items import function_call_output, user_message
from tests.conversations.scene import a_user

QUESTION = user_message("Who is Ada?")
ANSWER = {"type": "message", "role": "assistant", "content": []}


def call(id: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "status": "completed", **more}


def output(id: str, text: str = "Ada Lovelace") -> dict[str, Any]:
    return function_call_output(id, text)


def news(before: list[Any], *outputs: Any, ours: Any = ()) -> list[Any]:
    return list(ClientCalls().read(before, ours).new_items(outputs))


def test_an_output_of_a_call_that_waits_is_news():
    last_output = output("c1")
    assert news([QUESTION, call("c1")], last_output) == [last_output]


def test_a_message_is_news_whatever_waits():
    assert news([QUESTION, call("c1")], QUESTION) == [QUESTION]


@pytest.mark.parametrize("after", [[], [ANSWER], [ANSWER, QUESTION, ANSWER]])
def test_a_repeated_identical_output_changes_nothing(after: list[Any]):
    before = [QUESTION, call("c1"), output("c1"), *after]
    assert news(before, output("c1")) == []
    assert news(before, output("c1"), QUESTION) == [QUESTION]


def test_another_output_of_an_answered_call_is_refused():
    with pytest.raises(CallAlreadyAnswered) as refused:
        news(
            [QUESTION, call("c1"), output("c1"), ANSWER], output("c1", "Somebody else")
        )
    assert str(refused.value) == (
        "The call 'c1' already has a different output; it cannot be changed."
    )
    assert (refused.value.status, refused.value.param) == (409, "input")


def test_the_same_call_twice_in_one_request_counts_once_or_is_refused():
    first = output("c1")
    assert news([QUESTION, call("c1")], first, output("c1")) == [first]
    with pytest.raises(CallAlreadyAnswered):
        news([QUESTION, call("c1")], first, output("c1", "Somebody else"))


def test_outputs_of_all_calls_of_a_step_are_sent_together():
    before = [QUESTION, call("c1"), call("c2"), call("c3")]
    with pytest.raises(OutputsMissing) as refused:
        news(before, output("c2"))
    assert str(refused.value) == (
        "An output of 'c1', 'c3' is missing; send the outputs of all calls together."
    )
    assert len(news(before, output("c3"), output("c1"), output("c2"))) == 3


def test_a_new_message_gives_up_the_open_client_calls():
    before = [QUESTION, call("c1"), call("c2")]
    assert len(news(before, output("c1"), QUESTION)) == 2
    with pytest.raises(CallAbandoned) as refused:
        news([*before, QUESTION, ANSWER], output("c1"))
    assert refused.value.status == 409


def test_calls_of_tools_of_ours_are_not_the_clients_to_answer():
    before = [QUESTION, call("c1"), call("c2")]
    with pytest.raises(CallAlreadyAnswered, match="run by the server"):
        news(before, output("c1"), ours=["c1"])
    assert news(before, output("c2"), ours=["c1"])


def test_an_id_that_is_used_again_names_the_later_call():
    before = [QUESTION, call("c1"), output("c1"), ANSWER, QUESTION, call("c1")]
    assert len(news(before, output("c1", "Somebody else"))) == 1


def test_a_call_that_was_cut_short_waits_for_nothing():
    before = [QUESTION, call("c1"), call("c2", status="incomplete")]
    assert news(before, output("c1"))


def test_an_approval_is_given_once():
    request = {"type": "mcp_approval_request", "id": "m1"}
    answer = {
        "type": "mcp_approval_response",
        "approval_request_id": "m1",
        "approve": True,
    }
    assert news([QUESTION, request], answer) == [answer]
    assert news([QUESTION, request, answer], {**answer, "id": "other"}) == []
    with pytest.raises(CallAlreadyAnswered):
        news([QUESTION, request, answer], {**answer, "approve": False})


def test_an_id_of_ours_may_be_the_clients_in_a_later_turn():
    line = ClientCalls().read(
        [QUESTION, call("c1"), output("c1"), ANSWER], server_calls=["c1"]
    )
    line.read([QUESTION, call("c1")])
    assert list(line.new_items([output("c1", "Somebody else")]))


# Turns


@pytest.fixture
def conversation() -> Conversation:
    provider = Provider.objects.create(name="Demo", kind="demo")
    model = LanguageModel.objects.create(provider=provider, name="demo")
    return Conversation.objects.create(owner=a_user("ada"), language_model=model)


def called(conversation: Conversation, *ids: str) -> Any:
    """A turn that ended with these calls."""
    turn = conversation.open_turn([QUESTION]).turn
    for index, id in enumerate(ids, start=1):
        payload = {**call(id, name="look_up", arguments="{}"), "id": f"fc_{id}"}
        turn.items.create(
            position=index, origin="output", type=payload["type"], payload=payload
        )
    return turn


@pytest.mark.django_db
def test_the_same_outputs_again_are_answered_by_the_same_turn(conversation):
    called(conversation, "c1", "c2")
    outputs = [output("c1"), output("c2")]
    first = conversation.open_turn(outputs).turn
    again = conversation.open_turn([output("c1"), output("c2")]).turn
    assert again == first
    later = conversation.open_turn([QUESTION]).turn
    assert conversation.open_turn([output("c2")]).turn == first
    assert conversation.turns.count() == 3
    assert later.parent_id == first.pk


@pytest.mark.django_db
def test_a_refused_output_leaves_nothing_behind(conversation):
    called(conversation, "c1")
    conversation.open_turn([output("c1")])
    with pytest.raises(CallAlreadyAnswered), transaction.atomic():
        conversation.open_turn([output("c1", "Somebody else")])
    assert conversation.turns.count() == 2


@pytest.mark.django_db
def test_each_branch_answers_a_call_for_itself(conversation):
    turn = called(conversation, "c1")
    one = conversation.open_turn([output("c1")], parent=turn).turn
    other = conversation.open_turn([output("c1", "Somebody else")], parent=turn).turn
    assert one != other


@pytest.mark.django_db
def test_a_message_costs_no_query_more_where_calls_wait(conversation):
    called(conversation)
    with CaptureQueriesContext(connection) as without:
        conversation.open_turn([QUESTION])
    called(conversation, "c1")
    with CaptureQueriesContext(connection) as beside:
        conversation.open_turn([QUESTION])
    assert len(beside) == len(without)
