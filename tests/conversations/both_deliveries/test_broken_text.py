"""NUL and unpaired surrogates, which PostgreSQL cannot store: on SQLite, and with
tests.settings_scaled on PostgreSQL, endpoints answer alike and turns continue."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from conversations.engine import claim_store, lease_store, turn_store
from conversations.engine.claim_store import Claim
from conversations.engine.lease_store import Snapshot
from conversations.engine.progress_store import TurnProgress
from conversations.gateway import stored_rows
from conversations.gateway.http import Exchange
from conversations.gateway.websocket import _parse_message
from conversations.models import AccessToken, Conversation, Item, ToolCall, Turn
from conversations.streaming.client_messages import InvalidMessage
from conversations.streaming.consumers import ConversationConsumer
from llm import router
from llm.errors import ModelNotAvailable
from llm.wire.items import user_message
from tests.conversations.scene import a_model, a_user, program, signed_in
from tools.execute import CallOutcome

pytestmark = pytest.mark.django_db

BROKEN = "a\0b"
NUL_IN_JSON = r'{"input": "a\u0000b \\u0000", "metadata": {"\u0000": "c"}}'


@pytest.fixture
def ada() -> Any:
    return a_user("ada", is_staff=True, is_superuser=True)


@pytest.fixture
def page(ada: Any) -> Client:
    return signed_in(ada)


def claimed(owner: Any) -> Claim:
    conversation = Conversation.objects.create(owner=owner)
    claim = claim_store.claim(conversation.open_turn([user_message("hello")]).turn.pk)
    assert claim is not None
    return claim


# What a turn stores


def test_a_beat_that_no_database_takes_ends_no_other(ada: Any):
    snapshots = [Snapshot([{"text": text}], 3) for text in (BROKEN, "\ud83d", "plain")]
    beats = {claimed(ada): each for each in snapshots}
    heard = lease_store.heartbeat(beats)
    assert (heard.lost, heard.stopped) == ([], [])
    stored = [Turn.objects.get(pk=claim.turn_id).partial for claim in beats]
    expected = ["a\ufffdb", "\ufffd", "plain"]
    assert stored == [[{"text": text}] for text in expected]


def test_invalid_text_that_reached_a_row_ends_no_turn(ada: Any):
    """Past all checks: SQLite stores it, PostgreSQL a sanitized form."""
    claim = claimed(ada)
    call = {"type": "function_call", "call_id": "c1", "name": "f\0", "arguments": ""}
    failed = CallOutcome("c1", "failed", BROKEN, BROKEN, 0.1)
    progress = TurnProgress(
        items=[(call, {"raw": BROKEN}, 1)], first_position=1, executing=[call]
    )
    turn_store.advance(claim, progress)
    turn_store.advance(claim, TurnProgress(outcomes=[failed]))
    assert Item.objects.get(type="function_call").payload["call_id"] == "c1"
    assert ToolCall.objects.get().error in (BROKEN, "a\ufffdb")


# Programs


@pytest.mark.parametrize(
    ("method", "url", "body", "param"),
    [
        ("post", "conversations/", {"title": BROKEN}, "title"),
        ("post", "conversations/", {"model": BROKEN}, "model"),
        ("post", "conversations/", {"preset": BROKEN}, "preset"),
        ("post", "conversations/", {BROKEN: 1}, "a\ufffdb"),
        ("post", "turns/", {"input": [{"role": BROKEN}]}, "input[0].role"),
        ("post", "turns/", {"input": "x", "model": BROKEN}, "model"),
        (
            "post",
            "turns/",
            {"options": {"text": {"format": {"schema": {"title": BROKEN}}}}},
            "options.text.format.schema.title",
        ),
        (
            "post",
            "turns/",
            {"options": {"metadata": {BROKEN: "x"}}},
            "options.metadata.a\ufffdb",
        ),
        ("get", "conversations/?cursor=cD0lMDA%3D", None, "cursor"),
    ],
)
def test_a_program_is_told_which_field_contains_nul(
    ada: Any, method: str, url: str, body: Any, param: str
):
    conversation = Conversation.objects.create(owner=ada)
    url = url.replace("turns/", f"conversations/{conversation.pk}/turns/")
    send: Callable[..., Any] = getattr(program(ada), method)
    response = send(f"/api/{url}", body, content_type="application/json")
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


async def test_a_socket_is_told_which_field_contains_nul():
    message = json.dumps({"type": "turn.cancel", "turn": BROKEN})
    with pytest.raises(InvalidMessage) as refused:
        await ConversationConsumer.decode_json(message)
    assert refused.value.param == "turn"
    with pytest.raises(InvalidMessage):
        await ConversationConsumer.decode_json(r'{"turn": "\ud83d"}')
    with pytest.raises(InvalidMessage):
        await ConversationConsumer.decode_json("[" * 500 + r'"\u0000"' + "]" * 500)


@pytest.mark.parametrize("unit", ["[],", '{"a":1},'])
async def test_a_socket_does_not_parse_too_many_values(unit: str):
    message = f'{{"type": "turn.create", "input": [{unit * 300_000}0]}}'
    with pytest.raises(InvalidMessage, match="it has more than 250,000 values"):
        await ConversationConsumer.decode_json(message)


async def test_the_gateway_mends_what_is_sent_to_a_model():
    """A program's tool may have read a binary file; the model need not go without."""
    mended = {"input": "a\ufffdb \\u0000", "metadata": {"\ufffd": "c"}}

    async def receive() -> Any:
        return {"type": "http.request", "body": NUL_IN_JSON.encode()}

    scope = {"method": "POST", "path": "/v1/responses", "headers": []}
    assert await Exchange(scope, receive, receive).json() == mended
    over_socket = _parse_message('{"type": "response.create",' + NUL_IN_JSON[1:])
    assert over_socket == {"type": "response.create", **mended}


def test_the_gateway_finds_nothing_of_such_a_name(ada: Any):
    a_model()
    with pytest.raises(stored_rows.ResponseNotFound):
        stored_rows.find(AccessToken(user=ada), BROKEN)
    with pytest.raises(ModelNotAvailable):
        router.resolve(BROKEN, user=ada)


# People


@pytest.mark.parametrize(
    "url",
    [
        "/chat/%00/",
        "/chat/a%00b/turns/c%00d/",
        "/questions/%00/",
        "/chat/{}/turns/%00/",
    ],
)
def test_an_address_with_nul_leads_nowhere(ada: Any, page: Client, url: str):
    own = Conversation.objects.create(owner=ada)
    assert page.get(url.format(own.pk)).status_code == 404


@pytest.mark.parametrize("query", ["?at=%00", "?before=%00", "?q=%00", "?chats=%00"])
def test_a_query_with_nul_finds_nothing(ada: Any, page: Client, query: str):
    own = Conversation.objects.create(owner=ada)
    assert page.get(f"/chat/{own.pk}/{query}").status_code == 200


@pytest.mark.parametrize("name", ["conversation", "turn", "attachment", "question"])
def test_the_admin_finds_no_row_of_such_a_key(page: Client, name: str):
    assert page.get(f"/admin/conversations/{name}/%00/change/").status_code == 302


def test_a_form_with_nul_is_refused(page: Client):
    a_model()
    for field in ("text", "preset", "model", "key"):
        response = page.post("/", {"text": "hello", field: BROKEN})
        assert response.status_code == 400, field


def test_a_cookie_with_nul_is_no_session():
    client = Client()
    client.cookies["sessionid"] = "\0aaaaaaaaaaaa"
    assert client.get("/").status_code == 302
