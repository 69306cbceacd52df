"""Branches over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client

from conversations.models import BranchChoice, Conversation, Turn
from llm.wire.items import text_of, user_message
from tests.conversations.scene import (
    a_finished_turn,
    a_model,
    a_user,
    program,
    signed_in,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]
JSON = "application/json"


@pytest.fixture
def talk() -> Conversation:
    model = a_model(is_default=True)
    return Conversation.objects.create(owner=a_user(), language_model=model)


@pytest.fixture(params=["session", "token"])
def ada(request, talk) -> Client:
    if request.param == "session":
        return signed_in(talk.owner)
    return program(talk.owner)


def say(client: Client, talk: Conversation, text: str = "Hi", **fields: Any) -> Any:
    body = {"input": text, **fields}
    return client.post(f"/api/conversations/{talk.pk}/turns/", body, JSON)


def listed(client: Client, talk: Conversation, query: str = "") -> list[str]:
    found = client.get(f"/api/conversations/{talk.pk}/turns/{query}").json()
    return [turn["id"] for turn in found["results"]]


@pytest.mark.parametrize("name", ["parent", "previous_response_id"])
def test_a_turn_follows_the_one_that_the_request_names(ada, talk, name):
    root = a_finished_turn(talk)
    later = a_finished_turn(talk)
    shown = say(ada, talk, **{name: root.pk}).json()
    assert shown["parent"] == root.pk
    assert shown["siblings"] == [later.pk, shown["id"]]
    anew = say(ada, talk, **{name: None}).json()
    assert (anew["parent"], anew["siblings"]) == (None, [root.pk, anew["id"]])
    assert say(ada, talk).json()["parent"] == anew["id"]


def test_a_branch_is_continued_at_its_end(ada, talk):
    root = a_finished_turn(talk)
    end = a_finished_turn(talk)
    say(ada, talk, parent=None)
    assert say(ada, talk, branch=root.pk).json()["parent"] == end.pk


@pytest.mark.parametrize(
    "fields",
    [
        {"parent": "resp_none"},
        {"parent": 3},
        {"parent": "x" * 100},
        {"previous_response_id": "a\0b"},
        {"branch": "resp_none"},
        {"parent": None, "branch": "resp_none"},
    ],
)
def test_a_place_that_does_not_exist_is_named(ada, talk, fields):
    a_finished_turn(talk)
    response = say(ada, talk, **fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] in fields
    assert talk.turns.count() == 1


def test_a_parent_in_another_conversation_or_deleted_does_not_exist(ada, talk):
    other = a_finished_turn(Conversation.objects.create(owner=talk.owner))
    gone = a_finished_turn(talk)
    assert ada.delete(f"/api/turns/{gone.pk}/branch/").status_code == 204
    for parent in (other, gone):
        response = say(ada, talk, parent=parent.pk)
        assert response.json()["error"]["code"] == "unknown_turn"


def test_one_key_belongs_to_one_place(ada, talk):
    root = a_finished_turn(talk)
    headers = {"Idempotency-Key": "k"}
    url = f"/api/conversations/{talk.pk}/turns/"
    body = {"input": "Hi", "parent": root.pk}
    first = ada.post(url, body, JSON, headers=headers).json()
    assert ada.post(url, body, JSON, headers=headers).json()["id"] == first["id"]
    other = {"input": "Hi", "parent": None}
    assert ada.post(url, other, JSON, headers=headers).status_code == 409


def test_the_turns_of_one_branch_are_listed(ada, talk):
    root = a_finished_turn(talk)
    one = a_finished_turn(talk)
    end = a_finished_turn(talk)
    other = talk.open_turn([user_message("b")], parent=root).turn
    assert listed(ada, talk) == [root.pk, one.pk, end.pk, other.pk]
    assert listed(ada, talk, "?branch=shown") == [root.pk, other.pk]
    assert listed(ada, talk, f"?branch={one.pk}") == [root.pk, one.pk, end.pk]
    assert listed(ada, talk, f"?leaf={one.pk}") == [root.pk, one.pk]
    url = f"/api/conversations/{talk.pk}/turns/?leaf=resp_none"
    assert ada.get(url).json()["error"]["param"] == "leaf"


def test_the_branch_that_the_user_looks_at(ada, talk):
    url = f"/api/conversations/{talk.pk}/branch/"
    assert ada.get(url).json() == {"turn": None}
    root = a_finished_turn(talk)
    end = a_finished_turn(talk)
    other = talk.open_turn([user_message("b")], is_first=True).turn
    assert ada.get(url).json() == {"turn": other.pk}
    assert ada.put(url, {"turn": root.pk}, JSON).json() == {"turn": end.pk}
    assert ada.get(url).json() == {"turn": end.pk}
    for wrong in ("resp_none", None, 7, ""):
        assert ada.put(url, {"turn": wrong}, JSON).status_code == 400
    assert BranchChoice.objects.get().leaf_id == root.pk


def test_a_deleted_turn_is_restored(ada, talk):
    root = a_finished_turn(talk)
    below = a_finished_turn(talk)
    url = f"/api/turns/{root.pk}/"
    assert ada.delete(f"{url}branch/").status_code == 204
    assert [ada.get(f"/api/turns/{t.pk}/").status_code for t in (root, below)] == [
        404,
        404,
    ]
    assert listed(ada, talk) == []
    assert ada.delete(f"{url}branch/").status_code == 404
    assert ada.post(f"{url}restore/").json()["id"] == root.pk
    assert listed(ada, talk) == [root.pk, below.pk]
    assert ada.post(f"{url}restore/").status_code == 404


def test_a_deleted_conversation_is_restored_by_its_owner_only(ada, talk):
    url = f"/api/conversations/{talk.pk}/"
    assert ada.post(f"{url}restore/").status_code == 404  # it is not deleted
    ada.delete(url)
    assert signed_in(a_user("eve")).post(f"{url}restore/").status_code == 404
    assert ada.post(f"{url}restore/").json()["id"] == talk.pk
    assert ada.get(url).status_code == 200


def test_a_fork_is_made_once_for_each_key(ada, talk):
    turn = a_finished_turn(talk, "root")
    url = f"/api/turns/{turn.pk}/fork/"
    headers = {"Idempotency-Key": "k"}
    first = ada.post(url, headers=headers)
    assert first.status_code == 201
    assert first.json()["title"] == "root (fork)"
    assert ada.post(url, headers=headers).json()["id"] == first.json()["id"]
    assert ada.post(url).json()["id"] != first.json()["id"]
    other = a_finished_turn(talk)
    again = ada.post(f"/api/turns/{other.pk}/fork/", headers=headers)
    assert again.status_code == 409


def test_a_key_of_a_deleted_fork_makes_no_other(ada, talk):
    url = f"/api/turns/{a_finished_turn(talk).pk}/fork/"
    headers = {"Idempotency-Key": "k"}
    copy = ada.post(url, headers=headers).json()["id"]
    ada.delete(f"/api/conversations/{copy}/")
    again = ada.post(url, headers=headers)
    assert again.status_code == 409
    assert again.json()["error"]["code"] == "message_removed"


def test_a_cut_answer_goes_on(ada, talk):
    turn = a_finished_turn(talk)
    url = f"/api/turns/{turn.pk}/continue/"
    assert ada.post(url).status_code == 409
    Turn.objects.update(status="incomplete")
    shown = ada.post(url).json()
    assert shown["parent"] == turn.pk
    assert "cut off" in "".join(text_of(shown["items"][0]))


@pytest.mark.parametrize(
    "path",
    ["turns/{}/fork/", "turns/{}/restore/", "turns/{}/continue/", "turns/{}/branch/"],
)
def test_another_persons_turn_does_not_exist(talk, path):
    turn = a_finished_turn(talk)
    eve = signed_in(a_user("eve"))
    url = f"/api/{path.format(turn.pk)}"
    send = eve.delete if url.endswith("branch/") else eve.post
    assert send(url).status_code == 404
    assert Conversation.objects.count() == Turn.objects.count() == 1


def test_a_turn_that_is_deleted_while_turns_are_listed_does_no_harm(ada, talk):
    root = a_finished_turn(talk)
    end = a_finished_turn(talk)
    deleted: list[str] = []

    def delete_before_siblings_are_read(execute, sql, params, many, context):
        if '"caused_by_id" IS NULL' in sql and not deleted:
            deleted.append(end.pk)
            signed_in(talk.owner).delete(f"/api/turns/{end.pk}/branch/")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(delete_before_siblings_are_read):
        response = ada.get(f"/api/conversations/{talk.pk}/turns/")
    assert deleted
    siblings = {turn["id"]: turn["siblings"] for turn in response.json()["results"]}
    assert siblings == {root.pk: [root.pk], end.pk: [end.pk]}
    assert listed(ada, talk) == [root.pk]


def test_a_turn_that_is_added_while_turns_are_listed_is_a_sibling(ada, talk):
    root = a_finished_turn(talk)
    added: list[str] = []

    def add_before_siblings_are_read(execute, sql, params, many, context):
        if '"caused_by_id" IS NULL' in sql and not added:
            added.append("")
            added[0] = say(signed_in(talk.owner), talk, parent=None).json()["id"]
        return execute(sql, params, many, context)

    with connection.execute_wrapper(add_before_siblings_are_read):
        response = ada.get(f"/api/conversations/{talk.pk}/turns/")
    siblings = {turn["id"]: turn["siblings"] for turn in response.json()["results"]}
    assert siblings == {root.pk: [root.pk, *added]}


def test_the_siblings_of_a_page_are_read_at_once(
    ada, talk, django_assert_max_num_queries
):
    for _ in range(2):
        a_finished_turn(talk)
    with django_assert_max_num_queries(30) as few:
        listed(ada, talk)
    for _ in range(20):
        a_finished_turn(talk)
    with django_assert_max_num_queries(len(few)):
        assert len(listed(ada, talk)) > 10
