"""Stored responses: continued, read again, stopped, deleted."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import openai
import pytest

from tests import openresponses
from tests.integration.gateway.programs import CHECK, FAST, PATIENCE, Gateway, text_of

SLOW = "/slow 30 Count from 1 to 40"


def status_of(gateway: Gateway, id: str) -> str:
    return str(gateway.get(f"/responses/{id}").json()["status"])


def until(gateway: Gateway, id: str, *wanted: str) -> dict[str, Any]:
    deadline = time.monotonic() + PATIENCE
    while (response := gateway.get(f"/responses/{id}").json())["status"] not in wanted:
        assert time.monotonic() < deadline, response
    return dict(response)


@pytest.mark.parametrize("store", [False, True])
def test_a_response_goes_on_from_another(gateway: Gateway, store: bool):
    first = gateway.respond("My name is Ada")
    second = gateway.respond(
        "What is my name?", previous_response_id=first["id"], store=store
    )
    assert "Ada" in text_of(second)
    assert second["previous_response_id"] == first["id"]
    assert (gateway.get(f"/responses/{second['id']}").status_code == 200) is store


def test_two_may_go_on_from_the_same_and_know_nothing_of_each_other(gateway: Gateway):
    first = gateway.respond("Reply with exactly: hi")
    gateway.respond("My name is Ada", previous_response_id=first["id"])
    other = gateway.respond("What is my name?", previous_response_id=first["id"])
    assert "Ada" not in text_of(other)


def test_a_program_goes_on_from_its_response_after_its_user_did_in_the_chat(
    gateway: Gateway,
):
    made = gateway.server.manage("create_token", "admin", "--scope", "gateway")
    program = httpx.Client(
        base_url=gateway.url,
        headers={"Authorization": f"Bearer {made.splitlines()[-1]}"},
        timeout=PATIENCE,
    )
    with program, gateway.http() as person:
        body = {"model": FAST, "input": "My name is Ada"}
        first = program.post("/responses", json=body).json()
        conversation = first["conversation"]["id"]
        turns = f"{gateway.server.url}/api/conversations/{conversation}/turns/"
        chat = person.post(turns, json={"input": "I am Zoe", "wait": True}).json()
        assert chat["status"] == "completed"
        assert program.get(f"/responses/{chat['id']}").status_code == 404
        assert program.get(f"/responses/{first['id']}").status_code == 200
        follow_up = {
            "model": FAST,
            "input": "What is my name?",
            "previous_response_id": first["id"],
        }
        second = program.post("/responses", json=follow_up)
        assert second.status_code == 200, second.text
        assert "Ada" in text_of(second.json())
        assert "Zoe" not in text_of(second.json())
        assert program.get(f"/responses/{second.json()['id']}").status_code == 200


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("empty", [{}, {"input": None}, {"input": []}, {"input": ""}])
def test_without_input_the_model_continues_from_the_previous_items(
    gateway: Gateway, empty: dict[str, Any], store: bool
):
    first = gateway.respond("/echo three words here")
    body = {"model": FAST, "previous_response_id": first["id"], "store": store}
    answer = gateway.post("/responses", {**body, **empty})
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["input_tokens"] > 0
    assert text_of(answer.json())


def test_a_conversation_may_be_answered_without_input(gateway: Gateway):
    first = gateway.respond("My name is Ada")
    follow_up = {"model": FAST, "conversation": first["conversation"]}
    answer = gateway.post("/responses", follow_up).json()
    assert text_of(answer)
    listed = gateway.get(f"/responses/{answer['id']}/input_items").json()
    assert listed["data"] == []


def test_an_empty_conversation_calls_no_model(gateway: Gateway):
    with gateway.http() as http:
        made = http.post(f"{gateway.server.url}/api/conversations/", json={}).json()
        follow_up = {"model": FAST, "input": [], "conversation": made["id"]}
        refused = http.post("/responses", json=follow_up)
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["code"] == "missing_required_parameter"
        turns = f"{gateway.server.url}/api/conversations/{made['id']}/turns/"
        assert http.get(turns).json()["results"] == []


@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("empty", [{}, {"input": None}, {"input": []}, {"input": ""}])
def test_a_request_without_any_input_calls_no_model(
    gateway: Gateway, empty: dict[str, Any], store: bool, stream: bool
):
    body = {"model": FAST, "instructions": "Be brief.", "store": store, **empty}
    answer = gateway.post("/responses", {**body, "stream": stream})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] == {
        "message": "Send 'input', or what to go on from: 'previous_response_id' or"
        " 'conversation'.",
        "type": "invalid_request_error",
        "param": "input",
        "code": "missing_required_parameter",
    }


def test_an_output_finds_its_call_in_the_previous_response(gateway: Gateway):
    first = gateway.respond('/tool check_stock {"article": "tea"}', tools=[CHECK])
    [call] = [i for i in first["output"] if i["type"] == "function_call"]
    output = {"type": "function_call_output", "call_id": call["call_id"]}
    for store in (True, False):
        response = gateway.respond(
            [{**output, "output": "seven left"}],
            previous_response_id=first["id"],
            tools=[CHECK],
            store=store,
        )
        assert "seven left" in text_of(response)


@pytest.mark.parametrize("store", [True, False])
def test_a_call_is_answered_once_in_its_branch(gateway: Gateway, store: bool):
    first = gateway.respond('/tool check_stock {"article": "tea"}', tools=[CHECK])
    [call] = [i for i in first["output"] if i["type"] == "function_call"]
    output = {"type": "function_call_output", "call_id": call["call_id"]}
    second = gateway.respond(
        [{**output, "output": "seven left"}], previous_response_id=first["id"]
    )
    body = {"model": FAST, "previous_response_id": second["id"], "store": store}
    other = {**output, "output": "none left"}
    refused = gateway.post("/responses", {**body, "input": [other]})
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "call_already_answered"
    same = {**output, "output": "seven left"}
    again = gateway.respond(
        [same, {"role": "user", "content": "Reply with exactly: on we go"}],
        previous_response_id=second["id"],
        store=store,
    )
    assert text_of(again) == "on we go"


def test_its_owner_sees_it_as_a_conversation(gateway: Gateway):
    response = gateway.respond("Reply with exactly: seen in the chat")
    id = response["conversation"]["id"]
    path = f"{gateway.server.url}/api/conversations/{id}/"
    assert gateway.get(path).json()["title"] == "Reply with exactly: seen in the chat"
    again = gateway.respond("Reply with exactly: again", conversation=id)
    assert again["conversation"]["id"] == id
    missing = gateway.post(
        "/responses", {"model": FAST, "input": "hi", "conversation": "conv_none"}
    )
    assert missing.status_code == 404


def test_an_unstored_response_leaves_only_its_usage(gateway: Gateway):
    before = gateway.rows("Turn.objects.count(), Item.objects.count()")
    gateway.respond("Reply with exactly: secret", store=False)
    assert gateway.rows("Turn.objects.count(), Item.objects.count()") == before
    deadline = time.monotonic() + PATIENCE
    last = "ModelCall.objects.order_by('id').last()"
    while gateway.rows(f"{last}.model_name, {last}.status, {last}.turn_id") != (
        f"{FAST} completed"
    ):
        assert time.monotonic() < deadline


def test_it_is_read_again_and_deleted(gateway: Gateway):
    client = gateway.openai()
    made = client.responses.create(model=FAST, input="Reply with exactly: keep")
    read = client.responses.retrieve(made.id)
    assert read.output_text == "keep"
    event = {
        "type": "response.completed",
        "sequence_number": 0,
        "response": gateway.get(f"/responses/{made.id}").json(),
    }
    assert openresponses.problems(event) == []
    items = client.responses.input_items.list(made.id).data
    assert [item.type for item in items] == ["message"]
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_deleting_a_middle_response_keeps_earlier_ones(gateway: Gateway):
    first = gateway.respond("My name is Ada")
    second = gateway.respond("Say hi", previous_response_id=first["id"])
    third = gateway.respond("Say ho", previous_response_id=second["id"])
    with gateway.http() as http:
        assert http.delete(f"/responses/{second['id']}").json()["deleted"] is True
    last = gateway.respond("What is my name?", previous_response_id=third["id"])
    assert "Ada" in text_of(last)


def test_a_stream_of_a_deleted_response_ends(gateway: Gateway):
    first = gateway.respond("Reply with exactly: one")
    begun = gateway.respond(SLOW, background=True, previous_response_id=first["id"])
    path = f"/responses/{begun['id']}"
    with gateway.http() as http:
        events = http.stream("GET", path, params={"stream": "true"})
        with events as answer:
            lines = answer.iter_lines()
            next(lines)
            with gateway.http() as other:
                assert other.delete(path).json()["deleted"] is True
            assert [*lines][-2:] == ["data: [DONE]", ""]


def test_only_one_of_many_deletes_finds_a_response(gateway: Gateway):
    made = gateway.respond("Reply with exactly: one")["id"]

    def delete(_: int) -> int:
        with gateway.http() as http:
            return http.delete(f"/responses/{made}").status_code

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(delete, range(6))) == [200, *[404] * 5]


def test_responses_of_other_users_are_not_found(gateway: Gateway):
    id = gateway.respond("Reply with exactly: mine")["id"]
    gateway.server.manage(
        "shell",
        "-c",
        "from django.contrib.auth.models import User;"
        " User.objects.get_or_create(username='eve')",
    )
    headers = {"Authorization": f"Bearer {gateway.server.create_token('eve')}"}
    for path in (f"/responses/{id}", f"/responses/{id}/input_items"):
        assert gateway.get(path, **headers).status_code == 404
    assert gateway.post(f"/responses/{id}/cancel", {}, **headers).status_code == 404
    body = {"model": FAST, "input": "hi", "previous_response_id": id}
    for store in (True, False):
        answer = gateway.post("/responses", {**body, "store": store}, **headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "previous_response_not_found"


def test_one_in_the_background_is_there_at_once_and_can_be_stopped(gateway: Gateway):
    begun = gateway.respond(SLOW, background=True)
    assert begun["status"] == "queued"
    assert begun["background"] is True
    assert status_of(gateway, begun["id"]) in ("queued", "in_progress")
    stopped = gateway.openai().responses.cancel(begun["id"])  # it sends no body
    assert stopped.status == "cancelled"
    assert status_of(gateway, begun["id"]) == "cancelled"
    done = gateway.respond("Reply with exactly: done", background=True)
    assert text_of(until(gateway, done["id"], "completed")) == "done"


def test_a_stream_is_taken_up_where_it_was_left(gateway: Gateway):
    body = {"model": FAST, "input": "Count from 1 to 40", "background": True}
    frames = gateway.stream("/responses", body)
    whole = [frame.json() for frame in frames if frame.data != b"[DONE]"]
    id = whole[0]["response"]["id"]
    for after in (-1, 0, 3, len(whole) - 2):
        path = f"/responses/{id}?stream=true&starting_after={after}"
        rest = [f.json() for f in gateway.stream(path, {}) if f.data != b"[DONE]"]
        assert rest == whole[after + 1 :]
    for after in (len(whole) - 1, 10**14):
        path = f"/responses/{id}?stream=true&starting_after={after}"
        assert [f.data for f in gateway.stream(path, {})] == [b"[DONE]"]


def test_a_place_that_is_none_is_refused(gateway: Gateway):
    id = gateway.respond("Reply with exactly: hi")["id"]
    for number in ("x", "\u0661\u0662", "\u00b2", "1_0", "+1", " 1"):
        path = f"/responses/{id}?stream=true&starting_after={quote(number)}"
        assert gateway.get(path).status_code == 400
    for limit in ("0", "\u0661\u0662"):
        path = f"/responses/{id}/input_items?limit={quote(limit)}"
        assert gateway.get(path).status_code == 400


def test_a_stream_is_not_taken_up_by_numbers_that_it_no_longer_has(gateway: Gateway):
    id = gateway.respond("Reply with exactly: one two three four five")["id"]
    gateway.server.restart()
    refused = gateway.get(f"/responses/{id}?stream=true&starting_after=3")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "starting_after"
    assert "Leave out 'starting_after'" in refused.json()["error"]["message"]
    whole = gateway.get(f"/responses/{id}?stream=true")
    assert "one two three four five" in whole.text
    assert whole.text.endswith("data: [DONE]\n\n")
