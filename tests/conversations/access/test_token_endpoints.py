"""What a token may do at the REST endpoints, and the errors when it may not."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from conversations import engine
from conversations.access import budget
from conversations.access import rate_limits as limits
from conversations.access.admission import client_address, token_bucket_owner
from conversations.models import AccessToken, Conversation, Turn
from conversations.models.access_token import (
    Scope,
    is_within,
    validate_networks,
    validate_scopes,
)
from conversations.models.ledger import entry_id
from llm.models import LanguageModel
from tests.conversations.scene import a_model, a_user, signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("scripted_host")]

JSON = "application/json"
CHATS = "/api/conversations/"


@pytest.fixture(autouse=True)
def _engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)


@pytest.fixture
def ada() -> User:
    a_model(is_default=True, prices={"input": 1, "output": 1})
    return a_user("ada")


@pytest.fixture
def conversation(ada: User) -> Conversation:
    return Conversation.objects.create(owner=ada)


def holder(user: User, **limits: Any) -> Client:
    """A program with a token of these limits."""
    _, token = AccessToken.issue(user, "test", **limits)
    return Client(headers={"Authorization": f"Bearer {token}"})


def say(program: Client, conversation: Conversation, **fields: Any) -> Any:
    url = f"{CHATS}{conversation.pk}/turns/"
    return program.post(url, {"input": "Hi", **fields}, content_type=JSON)


def refusal(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


# Scopes


CALLS = "/api/conversations/{}/tool-calls/"
TURNS = "/api/conversations/{}/turns/"


@pytest.mark.parametrize(
    ("scope", "opened"),
    [
        ("chat", {CHATS, TURNS, CALLS, "/api/questions/", "/api/tools/"}),
        ("tools", {CALLS, "/api/questions/", "/api/tools/"}),
        ("admin-read", {"/api/tools/"}),
        ("gateway", set()),
    ],
)
def test_a_scope_opens_its_endpoints_and_no_others(
    ada: User, conversation: Conversation, scope: str, opened: set[str]
):
    program = holder(ada, scopes=[scope])
    for url in (CHATS, TURNS, CALLS, "/api/questions/", "/api/tools/", "/api/models/"):
        answer = program.get(url.format(conversation.pk))
        if url in opened or (scope == "chat" and url == "/api/models/"):
            assert answer.status_code == 200, url
        else:
            assert refusal(answer) == (403, "insufficient_scope"), url
            assert repr(scope) in answer.json()["error"]["message"]


def test_people_need_no_scope(ada: User):
    assert signed_in(ada).get(CHATS).status_code == 200


def test_every_token_may_read_the_schema(ada: User):
    assert holder(ada, scopes=["gateway"]).get("/api/schema/").status_code == 200


def test_everybodys_numbers_are_for_staff_with_the_scope_for_it():
    root = User.objects.create_superuser("root")
    other = Conversation.objects.create(owner=a_user("eve"))
    turn = other.open_turn([]).turn
    turn.tool_calls.create(call_id="c", name="calculator", state="completed")

    def seen(*scopes: str) -> int:
        program = holder(root, scopes=list(scopes))
        body = program.get("/api/tools/", {"statistics": "7d"}).json()["data"]
        return sum(t["statistics"]["calls"] for t in body if t["name"] == "calculator")

    assert seen("chat", "admin-read") == 1
    assert seen("chat") == 0


# Addresses


def test_a_token_is_refused_from_elsewhere(ada: User):
    program = holder(ada, networks=["192.0.2.0/24", "2001:db8::1"])
    answer = program.get(CHATS, REMOTE_ADDR="198.51.100.7")
    assert refusal(answer) == (403, "address_not_allowed")
    assert "198.51.100.7" in answer.json()["error"]["message"]
    for address in ("192.0.2.77", "2001:db8::1", "::ffff:192.0.2.5"):
        assert program.get(CHATS, REMOTE_ADDR=address).status_code == 200


def test_forwarded_headers_count_only_behind_a_trusted_proxy(ada: User, settings: Any):
    program = holder(ada, networks=["192.0.2.1"])
    forged = {"HTTP_X_FORWARDED_FOR": "192.0.2.1", "REMOTE_ADDR": "198.51.100.7"}
    assert program.get(CHATS, **forged).status_code == 403
    settings.BEHIND_HTTPS = True
    assert program.get(CHATS, **forged).status_code == 200
    # The proxy appends the peer's address to the header that the caller sent.
    added = {**forged, "HTTP_X_FORWARDED_FOR": "192.0.2.1, 198.51.100.7"}
    assert program.get(CHATS, **added).status_code == 403


@pytest.mark.parametrize(
    ("address", "network", "is_in"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("::1", "::1/128", True),
        ("fe80::1%eth0", "fe80::/10", True),
        ("::ffff:10.0.0.1", "10.0.0.0/8", True),
        ("", "0.0.0.0/0", False),
        ("unix:", "0.0.0.0/0", False),
        ("::1", "0.0.0.0/0", False),
    ],
)
def test_addresses_and_networks(address: str, network: str, is_in: bool):
    assert is_within(address, [network]) is is_in


def test_without_a_header_the_peer_is_the_caller(settings: Any):
    settings.BEHIND_HTTPS = True
    assert client_address("10.0.0.1", "") == "10.0.0.1"
    assert client_address("10.0.0.1", "1.1.1.1,  2.2.2.2 ") == "2.2.2.2"


@pytest.mark.parametrize("wrong", ["10.0.0.0/33", "here", "10.0.0.1/8", "", 4, None])
def test_a_list_of_networks_is_checked(wrong: Any):
    with pytest.raises(ValidationError):
        validate_networks([wrong])
    with pytest.raises(ValidationError):
        validate_networks("10.0.0.0/8")


@pytest.mark.parametrize("wrong", [[], ["root"], "chat", None])
def test_so_are_scopes(wrong: Any):
    with pytest.raises(ValidationError):
        validate_scopes(wrong)


# Models


@pytest.fixture
def other() -> LanguageModel:
    return a_model("m-2")


def test_a_model_that_a_token_may_not_use_does_not_exist_for_it(
    ada: User, conversation: Conversation, other: LanguageModel
):
    program = holder(ada, allowed_models=[other])
    for fields in ({}, {"model": "m-1"}):
        answer = say(program, conversation, **fields)
        assert refusal(answer) == (404, "model_not_found")
    assert not Turn.objects.exists()
    assert say(program, conversation, model="m-2").status_code == 202
    listed = program.get("/api/models/").json()["data"]
    assert [model["id"] for model in listed] == ["Test/m-2"]


def test_a_turn_records_whose_limits_apply(ada: User, conversation: Conversation):
    assert say(holder(ada), conversation).status_code == 202
    assert Turn.objects.get().access_token == AccessToken.objects.get()


# Rates


def test_a_rate_limited_client_is_told_when_to_retry(ada: User):
    program = holder(ada, requests_per_minute=2)
    responses = [program.get(CHATS) for _ in range(3)]
    assert [answer.status_code for answer in responses] == [200, 200, 429]
    assert responses[0]["x-ratelimit-limit-requests"] == "2"
    assert responses[0]["x-ratelimit-remaining-requests"] == "1"
    assert responses[0]["x-ratelimit-reset-requests"]
    refused = responses[-1]
    assert refusal(refused) == (429, "rate_limit_exceeded")
    assert refused["x-ratelimit-remaining-requests"] == "0"
    assert 1 <= int(refused["Retry-After"]) <= 30
    assert holder(ada, requests_per_minute=2).get(CHATS).status_code == 200


def test_an_unlimited_token_receives_no_limit_headers(ada: User):
    assert "x-ratelimit-limit-requests" not in holder(ada).get(CHATS)


def test_a_turn_is_not_opened_where_no_tokens_are_left(
    ada: User, conversation: Conversation
):
    program = holder(ada, tokens_per_minute=100)
    assert say(program, conversation).status_code == 202
    owner = token_bucket_owner(AccessToken.objects.get())
    limits.charge(owner, limits.Charge("tokens", 100, 150))
    answer = say(program, conversation)
    assert refusal(answer) == (429, "rate_limit_exceeded")
    assert "100 tokens a minute" in answer.json()["error"]["message"]
    assert Turn.objects.count() == 1


# Budgets


def test_a_turn_is_not_opened_where_the_budget_is_used_up(
    ada: User, conversation: Conversation
):
    program = holder(ada, budget=Decimal("0.01"))
    assert say(program, conversation).status_code == 202
    entry = entry_id()
    budget.reserve(entry, AccessToken.objects.get().pk, 10_000_000)
    budget.settle(entry, 10_000_000)
    answer = say(program, conversation)
    assert refusal(answer) == (429, "insufficient_quota")
    assert answer.json()["error"]["type"] == "insufficient_quota"
    assert Turn.objects.count() == 1


# What is over


def test_a_token_that_is_over_is_401_before_anything_else(ada: User):
    row, token = AccessToken.issue(ada, "x", networks=["10.0.0.1"], scopes=["tools"])
    program = Client(headers={"Authorization": f"Bearer {token}"})
    assert program.get(CHATS).status_code == 403
    row.expires_at = timezone.now() - timedelta(seconds=1)
    row.save()
    assert refusal(program.get(CHATS)) == (401, "invalid_api_key")


def test_the_usual_scopes_are_those_of_programs(ada: User):
    row, _ = AccessToken.issue(ada, "x")
    assert row.scopes == [Scope.CHAT, Scope.GATEWAY]


def test_approving_needs_a_scope_of_its_own():
    user = a_user("approver")
    for scopes, status in (
        (["chat", "tools", "gateway"], 403),
        (["approve"], 404),  # the question does not exist
    ):
        _, text = AccessToken.issue(user, "test", scopes=scopes)
        caller = Client(headers={"Authorization": f"Bearer {text}"})
        answer = caller.post(
            "/api/questions/ask_none/answer/", {}, content_type="application/json"
        )
        assert answer.status_code == status
