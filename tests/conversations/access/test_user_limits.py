"""Requests that signed-in users may send in a minute, at each entry point."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import Client

from conversations import engine
from conversations.access import admission, rate_limits
from conversations.models import Conversation, ToolCall, Turn
from tests.conversations.access.test_revocation import OpenPage, a_session
from tests.conversations.page_scene import page_of, read
from tests.conversations.scene import (
    a_finished_turn,
    a_model,
    a_user,
    program,
    signed_in,
)

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("scripted_host"),
]

JSON = "application/json"


@pytest.fixture(autouse=True)
def _few(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.USER_REQUESTS_PER_MINUTE = 2
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)


@pytest.fixture
def ada() -> User:
    a_model(is_default=True)
    return a_user("ada")


@pytest.fixture
def conversation(ada: User) -> Conversation:
    return Conversation.objects.create(owner=ada)


def say(client: Client, conversation: Conversation, text: str = "Hi") -> Any:
    url = f"/api/conversations/{conversation.pk}/turns/"
    return client.post(url, {"input": text}, content_type=JSON)


def write(client: Client, conversation: Conversation, text: str = "Hi") -> Any:
    return client.post(page_of(conversation), {"text": text})


def test_rest_refuses_the_third_request_of_a_session(ada: User, conversation: Any):
    client = signed_in(ada)
    first = say(client, conversation)
    assert first.status_code == 202
    assert first["x-ratelimit-remaining-requests"] == "1"
    say(client, conversation)
    refused = say(client, conversation)
    assert refused.status_code == 429
    assert 0 < int(refused["Retry-After"]) <= 30
    error = refused.json()["error"]
    assert error["code"] == "rate_limit_exceeded"
    assert error["message"].startswith("You may take 2 requests a minute;")
    assert Turn.objects.count() == 2


def test_pages_are_limited_too_and_keep_the_draft(ada: User, conversation: Any):
    client = signed_in(ada)
    for _ in range(2):
        assert write(client, conversation).status_code == 302
    refused = write(client, conversation, "What I wrote last")
    assert refused.status_code == 429
    assert 0 < int(refused["Retry-After"]) <= 30
    assert "You may take 2 requests a minute" in read(refused)
    assert "What I wrote last" in refused.content.decode()
    turn = Turn.objects.first()
    assert turn is not None
    retried = client.post(f"{page_of(conversation)}turns/{turn.pk}/retry/", {})
    assert retried.status_code == 429
    assert Turn.objects.count() == 2


async def test_so_does_the_socket_of_a_page(
    ada: User, conversation: Any, settings: Any, running: None
):
    settings.USER_REQUESTS_PER_MINUTE = 1
    credential = await sync_to_async(a_session)(ada)
    page = OpenPage(conversation, credential.session_key)
    assert (await page.hears.get())["type"] == "websocket.accept"
    heard = [
        orjson.loads(
            (await page.send_message(type="turn.cancel", turn="x", key=key))["text"]
        )
        for key in ("k1", "k2")
    ]
    assert heard[0]["error"]["code"] == "invalid_message"
    assert heard[1]["key"] == "k2"
    error = heard[1]["error"]
    assert error["code"] == "rate_limit_exceeded"
    assert 0 < error["retry_after"] <= 60
    await page.leave()


def test_all_entries_count_together_and_each_user_alone(ada: User, conversation: Any):
    client = signed_in(ada)
    assert say(client, conversation).status_code == 202
    assert write(client, conversation).status_code == 302
    assert say(client, conversation).status_code == 429
    assert say(program(ada), conversation).status_code == 202
    grace = a_user("grace")
    hers = Conversation.objects.create(owner=grace)
    assert say(signed_in(grace), hers).status_code == 202


def test_looks_of_open_pages_take_nothing_from_the_person(
    ada: User, conversation: Conversation
):
    client = signed_in(ada)
    path = f"/api/conversations/{conversation.pk}/changes/"
    assert [client.get(path).status_code for _ in range(2)] == [200, 200]
    refused = client.get(path)
    assert refused.status_code == 429
    assert 0 < int(refused["Retry-After"]) <= 30
    for _ in range(2):
        assert say(client, conversation).status_code == 202
    assert say(client, conversation).status_code == 429


def test_bytes_are_counted(ada: User, conversation: Any, settings: Any):
    settings.USER_REQUESTS_PER_MINUTE = 0
    settings.USER_BYTES_PER_MINUTE = 3000
    client = signed_in(ada)
    assert say(client, conversation, "x" * 2000).status_code == 202
    refused = say(client, conversation, "x" * 2000)
    assert refused.status_code == 429
    assert "3000 bytes a minute" in refused.json()["error"]["message"]
    assert say(client, conversation, "x" * 100).status_code == 202


@pytest.mark.parametrize("entry", [say, write])
def test_a_user_over_the_token_limit_starts_no_turn(
    entry: Any, ada: User, conversation: Any, settings: Any
):
    settings.USER_REQUESTS_PER_MINUTE = 0
    settings.USER_TOKENS_PER_MINUTE = 1000
    client = signed_in(ada)
    entry(client, conversation)
    assert Turn.objects.count() == 1
    admission.charge_user_tokens(admission.user_bucket_owner(ada), 5000)
    refused = entry(client, conversation)
    assert refused.status_code == 429
    assert "1000 tokens a minute" in read(refused)
    assert int(refused["Retry-After"]) <= 120
    assert Turn.objects.count() == 1


def go_on_by_rest(client: Client, halted: Turn) -> Any:
    return client.post(f"/api/turns/{halted.pk}/continue/")


def go_on_by_page(client: Client, halted: Turn) -> Any:
    fields = {"text": "What I was writing"}
    return client.post(
        f"{page_of(halted.conversation)}turns/{halted.pk}/continue/", fields
    )


@pytest.fixture
def halted(conversation: Conversation) -> Turn:
    """A message whose one result waits for leave to go on."""
    turn = a_finished_turn(conversation, "Dig")
    Turn.objects.filter(pk=turn.pk).update(halted_by="max_turns")
    done = {"state": "completed", "output": "gold", "blocking": False}
    ToolCall.objects.create(turn=turn, call_id="c1", name="dig", **done)
    return turn


@pytest.mark.parametrize("entry", [go_on_by_rest, go_on_by_page])
def test_going_on_has_the_limits_of_the_user(
    entry: Any, ada: User, halted: Turn, settings: Any
):
    settings.USER_TOKENS_PER_MINUTE = 1000
    client = signed_in(ada)
    admission.charge_user_tokens(admission.user_bucket_owner(ada), 1500)
    refused = entry(client, halted)
    assert refused.status_code == 429
    assert "1000 tokens a minute" in read(refused)
    assert int(refused["Retry-After"]) <= 60
    settings.USER_TOKENS_PER_MINUTE = 0
    entry(client, halted)
    assert Turn.objects.filter(caused_by=halted).count() == 1
    settings.USER_REQUESTS_PER_MINUTE = 1
    refused = entry(client, halted)
    assert refused.status_code == 429
    assert "1 requests a minute" in read(refused)
    if entry is go_on_by_page:
        assert "What I was writing" in refused.content.decode()


@pytest.mark.usefixtures("running")
async def test_going_on_over_a_socket_has_them_too(
    ada: User, halted: Turn, settings: Any
):
    settings.USER_TOKENS_PER_MINUTE = 1000
    owner = admission.user_bucket_owner(ada)
    await sync_to_async(admission.charge_user_tokens)(owner, 1500)
    credential = await sync_to_async(a_session)(ada)
    page = OpenPage(halted.conversation, credential.session_key)
    assert (await page.hears.get())["type"] == "websocket.accept"
    heard = await page.send_message(type="turn.continue", turn=halted.pk, key="k")
    error = orjson.loads(heard["text"])["error"]
    assert error["code"] == "rate_limit_exceeded"
    assert "1000 tokens a minute" in error["message"]
    assert not await Turn.objects.filter(caused_by=halted).aexists()
    await page.leave()


def test_a_program_goes_on_within_the_tokens_of_its_token(ada: User, halted: Turn):
    client = program(ada)
    token = ada.access_tokens.get()
    type(token).objects.update(tokens_per_minute=1000)
    owner = admission.token_bucket_owner(token)
    rate_limits.charge(owner, rate_limits.Charge("tokens", 1000, 1500))
    refused = go_on_by_rest(client, halted)
    assert refused.status_code == 429
    assert not Turn.objects.filter(caused_by=halted).exists()


@pytest.mark.usefixtures("running")
async def test_a_socket_counts_bytes(ada: User, conversation: Any, settings: Any):
    settings.USER_REQUESTS_PER_MINUTE = 0
    settings.USER_BYTES_PER_MINUTE = 1000
    credential = await sync_to_async(a_session)(ada)
    page = OpenPage(conversation, credential.session_key)
    assert (await page.hears.get())["type"] == "websocket.accept"
    # 400 characters, and 800 bytes.
    codes = [
        orjson.loads((await page.send("é" * 400))["text"])["error"]["code"]
        for _ in range(2)
    ]
    assert codes == ["invalid_message", "rate_limit_exceeded"]
    await page.leave()


def test_zero_is_no_limit(ada: User, conversation: Any, settings: Any):
    for name in ("REQUESTS", "TOKENS", "BYTES"):
        setattr(settings, f"USER_{name}_PER_MINUTE", 0)
    client = signed_in(ada)
    for _ in range(4):
        assert say(client, conversation).status_code == 202
