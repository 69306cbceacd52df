from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from conversations import engine
from conversations.models import Conversation, IdempotencyKey, Item, ToolCall, Turn
from llm.models import ModelCall
from llm.wire.items import user_message
from tests.conversations.scene import (
    a_finished_turn,
    a_model,
    a_user,
    bearer,
    program,
    signed_in,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]


@pytest.fixture(autouse=True)
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Turns that were handed to the engine."""
    turns: list[str] = []
    monkeypatch.setattr(engine, "submit", lambda turn, *_, **__: turns.append(turn))
    return turns


@pytest.fixture
def ada() -> Any:
    a_model(is_default=True, alias="fast", capabilities={"tools": True})
    return a_user("ada")


@pytest.fixture
def api(ada: Any) -> Client:
    return program(ada)


@pytest.fixture
def conversation(ada: Any) -> Conversation:
    return Conversation.objects.create(owner=ada, title="Paris")


def turns_url(conversation: Conversation) -> str:
    return reverse("api:turns", args=[conversation.pk])


def post(api: Client, url: str, body: Any, **headers: str) -> Any:
    return api.post(url, body, content_type="application/json", headers=headers)


def patch(api: Client, url: str, body: Any) -> Any:
    return api.patch(url, body, content_type="application/json")


# Conversations


def test_a_conversation_is_made_read_renamed_and_deleted(api: Client):
    made = post(api, "/api/conversations/", {"title": "Trip", "model": "fast"})
    assert made.status_code == 201
    assert made.json()["model"] == "fast"
    url = f"/api/conversations/{made.json()['id']}/"

    assert api.get(url).json() == made.json()
    assert patch(api, url, {"title": "Journey"}).json()["title"] == "Journey"
    assert patch(api, url, {"model": None}).json()["model"] is None
    assert patch(api, url, {"instructions": " Be kind. "}).status_code == 200
    assert Conversation.objects.get().instructions == " Be kind. "

    assert api.delete(url).status_code == 204
    assert api.get(url).status_code == 404
    assert api.delete(url).status_code == 404
    assert api.get("/api/conversations/").json()["results"] == []
    assert Conversation.objects.get().deleted_at  # the staff still have the rows


def test_deleting_a_conversation_stops_its_turns(
    api: Client, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
):
    stopped: list[Turn] = []
    monkeypatch.setattr(engine, "cancel", stopped.append)
    a_finished_turn(conversation)
    running = conversation.open_turn([user_message("Hi")]).turn
    api.delete(reverse("api:conversation", args=[conversation.pk]))
    assert stopped == [running]


def test_pages_neither_repeat_nor_skip_while_conversations_come_and_go(
    api: Client, ada: Any
):
    made = {Conversation.objects.create(owner=ada).pk for _ in range(25)}
    seen: list[str] = []
    url = "/api/conversations/?limit=10"
    while url:
        page = api.get(url).json()
        seen += [row["id"] for row in page["results"]]
        Conversation.objects.create(owner=ada)  # on top, behind our back
        url = page["next"]
    assert len(seen) == len(set(seen)) == 25
    assert set(seen) == made


def test_the_same_moment_does_not_confuse_the_pages(api: Client, ada: Any):
    rows = [Conversation.objects.create(owner=ada) for _ in range(7)]
    Conversation.objects.update(updated_at=rows[0].updated_at)
    first = api.get("/api/conversations/?limit=4").json()
    second = api.get(first["next"]).json()
    ids = [row["id"] for row in first["results"] + second["results"]]
    assert ids == sorted((row.pk for row in rows), reverse=True)


def test_a_list_costs_as_many_queries_for_20_rows_as_for_2(
    api: Client,
    ada: Any,
    conversation: Conversation,
    django_assert_max_num_queries: Any,
):
    for url in ("/api/conversations/", turns_url(conversation)):
        for more in (2, 18):
            for _ in range(more):
                model = conversation.language_model
                Conversation.objects.create(owner=ada, language_model=model)
                turn = a_finished_turn(conversation)
                turn.tool_calls.create(call_id="call_1", name="now")
            with django_assert_max_num_queries(7):
                assert len(api.get(url).json()["results"]) >= more


# Turns


def test_a_posted_message_becomes_a_turn_at_once(
    api: Client, conversation: Conversation, submitted: list[str]
):
    answer = post(api, turns_url(conversation), {"input": "Weather?"})
    assert answer.status_code == 202
    turn = answer.json()
    assert turn["status"] == "queued"
    assert turn["conversation"] == conversation.pk
    assert turn["model"] == "fast"
    assert [item["content"] for item in turn["items"]] == [
        [{"type": "input_text", "text": "Weather?"}]
    ]
    assert submitted == [turn["id"]]


@pytest.mark.parametrize(
    ("body", "form"), [({"wait": True}, "response"), ({"stream": True}, "events")]
)
def test_wait_and_stream_hand_the_connection_to_the_stream(
    api: Client, conversation: Conversation, body: dict[str, Any], form: str
):
    answer = post(api, turns_url(conversation), {"input": "Hi", **body})
    turn = Turn.objects.get()
    assert json.loads(answer["X-Parley-Follow"]) == [turn.pk, None, form, True]


def test_a_turn_stores_its_model_and_options(api: Client, conversation: Conversation):
    other = a_model("m-2")
    post(
        api,
        turns_url(conversation),
        {"input": "Hi", "model": "m-2", "options": {"temperature": 0.5, "text": None}},
    )
    turn = Turn.objects.get()
    assert turn.language_model == other
    assert turn.options.pop("caller")["request_id"].startswith("req_")
    assert turn.options == {"temperature": 0.5}


def test_a_finished_turn_is_read_with_all_that_belongs_to_it(
    api: Client, conversation: Conversation
):
    turn = a_finished_turn(conversation)
    turn.tool_calls.create(
        call_id="call_1", name="now", state=ToolCall.State.COMPLETED, attempts=1
    )
    ModelCall.objects.create(
        turn_id=turn.pk,
        provider_name="Test",
        model_name="m-1",
        status="failed",
        error_code="E_LLM_TIMEOUT",
        error_detail="what staff alone may read",
    )
    answer = api.get(reverse("api:turn", args=[turn.pk]))
    body = answer.json()
    assert body["status"] == "completed"
    assert [i["role"] for i in body["items"]] == ["user", "assistant"]
    assert body["response"]["status"] == "completed"
    assert body["response"]["output"] == body["items"][1:]
    assert body["response"]["usage"]["total_tokens"] == 5
    assert body["tool_calls"][0]["state"] == "completed"
    assert body["model_calls"][0]["error_code"] == "E_LLM_TIMEOUT"
    assert "what staff alone may read" not in answer.content.decode()


def test_a_running_turn_shows_the_text_so_far(api: Client, conversation: Conversation):
    turn = conversation.open_turn([user_message("Hi")]).turn
    partial = {"type": "message", "id": "msg_1", "status": "in_progress"}
    partial |= {"role": "assistant", "content": [{"type": "output_text", "text": "He"}]}
    Turn.objects.filter(pk=turn.pk).update(status="in_progress", partial=[partial])
    response = api.get(reverse("api:turn", args=[turn.pk])).json()["response"]
    assert response["status"] == "in_progress"
    assert response["output"] == [partial]


def test_a_failed_turn_shows_the_same_error_as_a_response(
    api: Client, conversation: Conversation
):
    turn = conversation.open_turn([user_message("Hi")]).turn
    shown = {"code": "E_LLM_RATE_LIMIT", "message": "Slow down."}
    stored = {**shown, "retry_after": 18.0, "param": "input"}
    Turn.objects.filter(pk=turn.pk).update(status="failed", error=stored)
    body = api.get(reverse("api:turn", args=[turn.pk])).json()
    assert body["error"] == body["response"]["error"] == shown


def test_a_stopped_turn_reads_as_its_last_event_did(
    api: Client, conversation: Conversation
):
    turn = a_finished_turn(conversation)
    turn.status, turn.incomplete_reason = Turn.Status.CANCELLED, "cancelled"
    turn.save()
    body = api.get(reverse("api:turn", args=[turn.pk])).json()
    assert body["status"] == "cancelled"
    assert body["response"]["status"] == "incomplete"
    assert body["response"]["incomplete_details"] == {"reason": "cancelled"}


def test_provider_proofs_are_not_exposed(api: Client, conversation: Conversation):
    turn = a_finished_turn(conversation)
    turn.items.update(provider_data={"raw": "opaque"})
    for url in (turns_url(conversation), reverse("api:turn", args=[turn.pk])):
        assert "opaque" not in api.get(url).content.decode()


def test_stopping_is_harmless_however_often(
    api: Client, conversation: Conversation, monkeypatch: pytest.MonkeyPatch
):
    stopped: list[Turn] = []
    monkeypatch.setattr(engine, "cancel", stopped.append)
    turn = a_finished_turn(conversation)
    url = reverse("api:cancel", args=[turn.pk])
    for _ in range(2):
        answer = api.post(url)
        assert (answer.status_code, answer.json()["id"]) == (200, turn.pk)
    assert stopped == [turn, turn]


def test_an_output_of_the_clients_own_tool_is_taken(
    api: Client, conversation: Conversation
):
    turn = a_finished_turn(conversation)
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1"}
    call |= {"name": "look", "arguments": "{}", "status": "completed"}
    Item.of(turn, 2, call, origin=Item.Origin.OUTPUT).save()
    output = {"type": "function_call_output", "call_id": "call_1", "output": "42"}
    answer = post(api, turns_url(conversation), {"input": [output]})
    assert answer.status_code == 202
    assert answer.json()["items"][0]["output"] == "42"


# Events


@pytest.mark.parametrize(
    ("query", "header", "followed"),
    [
        ("?after=1-7", "2-3", ["2-3", "events"]),
        ("?after=1-7", None, ["1-7", "events"]),
        ("", None, [None, "events"]),
        ("?format=text", None, [None, "text"]),
        ("?format=events&after=1-0", None, ["1-0", "events"]),
    ],
)
def test_events_are_followed_from_the_newest_position(
    api: Client,
    conversation: Conversation,
    query: str,
    header: str | None,
    followed: list[str | None],
):
    turn = a_finished_turn(conversation)
    headers = {"Accept": "text/event-stream"}
    if header:
        headers["Last-Event-ID"] = header
    answer = api.get(reverse("api:events", args=[turn.pk]) + query, headers=headers)
    assert json.loads(answer["X-Parley-Follow"]) == [turn.pk, *followed, False]


def test_head_of_the_events_opens_no_stream(api: Client, conversation: Conversation):
    turn = a_finished_turn(conversation)
    answer = api.head(reverse("api:events", args=[turn.pk]))
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/event-stream; charset=utf-8"
    assert answer["Cache-Control"] == "no-cache, no-transform"
    assert "X-Parley-Follow" not in answer


# Idempotency


def test_the_same_key_repeats_nothing(
    api: Client, conversation: Conversation, submitted: list[str]
):
    url, body = turns_url(conversation), {"input": "Hi", "options": {"top_p": 1}}
    first = post(api, url, body, **{"Idempotency-Key": "k1"})
    again = post(api, url, dict(reversed(body.items())), **{"Idempotency-Key": "k1"})
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["id"] == again.json()["id"]
    assert Turn.objects.count() == Item.objects.count() == 1


def test_the_same_idempotency_key_allows_another_response_format(
    api: Client, conversation: Conversation
):
    url = turns_url(conversation)
    post(api, url, {"input": "Hi"}, **{"Idempotency-Key": "k1"})
    streamed = post(
        api, url, {"input": "Hi", "stream": True}, **{"Idempotency-Key": "k1"}
    )
    turn = Turn.objects.get()
    assert json.loads(streamed["X-Parley-Follow"]) == [turn.pk, None, "events", True]


def test_the_same_key_for_something_else_is_refused(
    api: Client, ada: Any, conversation: Conversation
):
    other = Conversation.objects.create(owner=ada)
    post(api, turns_url(conversation), {"input": "Hi"}, **{"Idempotency-Key": "k1"})
    for url, body in [
        (turns_url(conversation), {"input": "Bye"}),
        (turns_url(other), {"input": "Hi"}),
    ]:
        answer = post(api, url, body, **{"Idempotency-Key": "k1"})
        assert answer.status_code == 409
        assert answer.json()["error"]["code"] == "idempotency_key_reused"
    assert Turn.objects.count() == 1


def test_anothers_key_is_another_key(api: Client, conversation: Conversation):
    bob = a_user("bob")
    his = Conversation.objects.create(owner=bob)
    post(api, turns_url(conversation), {"input": "Hi"}, **{"Idempotency-Key": "k1"})
    answer = post(
        program(bob), turns_url(his), {"input": "Hi"}, **{"Idempotency-Key": "k1"}
    )
    assert answer.status_code == 202
    assert IdempotencyKey.objects.count() == Turn.objects.count() == 2


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.django_db(transaction=True)
def test_a_hundred_at_once_with_one_key_are_one_turn(conversation: Conversation):
    headers = bearer(conversation.owner)

    def send(_: int) -> tuple[int, str]:
        try:
            client = Client(headers=headers)
            answer = post(
                client,
                turns_url(conversation),
                {"input": "Hi"},
                **{"Idempotency-Key": "k1"},
            )
            return answer.status_code, answer.json().get("id", "")
        finally:
            connection.close()

    with ThreadPoolExecutor(20) as threads:
        answers = set(threads.map(send, range(100)))
    assert answers == {(202, Turn.objects.get().pk)}
    assert Item.objects.count() == 1


def test_a_race_that_only_the_database_decides_has_one_winner(
    conversation: Conversation, monkeypatch: pytest.MonkeyPatch
):
    def open_turn() -> Turn:
        return conversation.open_turn([user_message("Hi")]).turn

    user = conversation.owner
    first, _ = IdempotencyKey.objects.get_or_open(user, "k1", "f", open_turn)
    known = type(IdempotencyKey.objects.all()).find_turn
    looks = iter([None])  # the first look comes too early to see the winner
    monkeypatch.setattr(
        type(IdempotencyKey.objects.all()),
        "find_turn",
        lambda self, *args: next(looks, known(self, *args)),
    )
    again, opened = IdempotencyKey.objects.get_or_open(user, "k1", "f", open_turn)
    assert (again, opened) == (first, False)
    assert Turn.objects.count() == 1


# Models


def test_models_are_those_that_one_may_use(api: Client, ada: Any):
    group = Group.objects.create(name="chosen")
    a_model("secret").groups.add(group)
    a_model("off", enabled=False)
    shared = a_model(
        "m-2",
        context_window=1000,
        label="Second",
        description="For short questions",
        capabilities={"tools": True},
        prices={"input": 2, "output": "8.5"},
    )
    models = api.get("/api/models/").json()["data"]
    assert [model["id"] for model in models] == ["fast", shared.public_name]
    assert models[1] == {
        "id": "Test/m-2",
        "label": "Second",
        "description": "For short questions",
        "provider": "Test",
        "default": False,
        "capabilities": {"tools": True},
        "context_window": 1000,
        "max_output_tokens": None,
        "prices": {"input": 2.0, "output": 8.5},
    }
    ada.groups.add(group)
    assert len(api.get("/api/models/").json()["data"]) == 3


# Everyone sees only what is theirs


def test_rows_of_other_users_are_not_found(api: Client, conversation: Conversation):
    turn = a_finished_turn(conversation)
    bob = program(a_user("bob", is_superuser=True, is_staff=True))
    conversation_url = reverse("api:conversation", args=[conversation.pk])
    for answer in [
        bob.get(conversation_url),
        patch(bob, conversation_url, {"title": "Mine"}),
        bob.delete(conversation_url),
        bob.get(turns_url(conversation)),
        post(bob, turns_url(conversation), {"input": "Hi"}),
        bob.get(reverse("api:turn", args=[turn.pk])),
        bob.get(reverse("api:events", args=[turn.pk])),
        bob.post(reverse("api:cancel", args=[turn.pk])),
    ]:
        assert answer.status_code == 404, answer.request
        assert answer.json()["error"]["code"] == "not_found"
    conversation.refresh_from_db()
    assert (conversation.title, conversation.deleted_at) == ("Paris", None)
    assert api.get(conversation_url).status_code == 200
    assert bob.get("/api/conversations/").json()["results"] == []


def test_a_browser_needs_its_csrf_token_to_change_something(
    conversation: Conversation,
):
    browser = signed_in(conversation.owner, enforce_csrf_checks=True)
    assert browser.get(turns_url(conversation)).status_code == 200
    refused = post(browser, turns_url(conversation), {"input": "Hi"})
    assert refused.status_code == 403
    assert refused.json()["error"]["code"] == "permission_denied"
    assert not Turn.objects.exists()


# The document


@pytest.mark.slow
@pytest.mark.smoke
def test_the_schema_is_valid_and_has_no_warning(tmp_path: Any):
    path = tmp_path / "schema.yaml"
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(path))
    text = path.read_text()
    assert "text/event-stream" in text
    assert "Idempotency-Key" in text
    assert "scheme: bearer" in text


def test_the_schema_is_served(client: Client):
    answer = client.get("/api/schema/", {"format": "json"})
    assert answer.status_code == 200
    assert "/api/turns/{id}/events/" in json.loads(answer.content)["paths"]


def test_a_query_does_not_name_the_files_of_the_document(client):
    answer = client.get("/api/schema/", {"version": "a\0b", "format": "json"})
    assert answer.status_code == 200
    assert answer["Content-Disposition"].isprintable()
