"""A token approves calls that a provider runs only with the scope for it."""

from __future__ import annotations

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.test import Client

from conversations.models import AccessToken, Conversation, Item
from llm.models import ApiKey, LanguageModel, Provider
from tests.conversations.gateway.forwarding import hosts
from tests.conversations.scene import a_user

pytestmark = pytest.mark.django_db

REQUEST = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "files",
    "name": "delete",
    "arguments": "{}",
}


@pytest.fixture
def conversation() -> Conversation:
    """Its last turn waits for a decision about a call of the provider."""
    provider = Provider.objects.create(name="Real", kind="openai")
    ApiKey.objects.create(provider=provider, secret="key-of-these-tests")
    model = LanguageModel.objects.create(provider=provider, name="m", is_default=True)
    ada = a_user("ada")
    conversation = Conversation.objects.create(owner=ada, language_model=model)
    turn = conversation.open_turn([{"type": "message", "role": "user", "content": "x"}])
    Item.objects.create(
        turn=turn.turn,
        position=1,
        type=REQUEST["type"],
        payload=REQUEST,
        origin=Item.Origin.OUTPUT,
    )
    return conversation


@pytest.mark.parametrize("is_approved", [True, False])
@pytest.mark.parametrize(
    ("scopes", "status"), [(["chat"], 403), (["chat", "approve"], 202)]
)
def test_a_token_decides_about_a_call_of_a_provider(
    conversation: Conversation, scopes: list[str], status: int, is_approved: bool
):
    _, secret = AccessToken.issue(conversation.owner, "program", scopes=scopes)
    decision: dict[str, Any] = {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_1",
        "approve": is_approved,
    }
    answer = Client().post(
        f"/api/conversations/{conversation.pk}/turns/",
        {"input": [decision]},
        content_type="application/json",
        headers={"Authorization": f"Bearer {secret}"},
    )
    assert answer.status_code == status, answer.content
    if status == 403:
        assert answer.json()["error"]["code"] == "insufficient_scope"
        assert conversation.turns.count() == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("scopes", "status"),
    [(["chat", "gateway"], 403), (["chat", "gateway", "approve"], 200)],
)
async def test_a_token_decides_in_a_person_s_chat_through_the_gateway(
    conversation: Conversation, scopes: list[str], status: int
):
    issue = sync_to_async(AccessToken.issue)
    _, secret = await issue(conversation.owner, "program", scopes=scopes)
    decision = {
        "type": "mcp_approval_response",
        "approval_request_id": "mcpr_1",
        "approve": True,
    }
    body = {"model": "m", "conversation": conversation.pk, "background": True}
    client = hosts.Client(secret)
    try:
        answer = await client.post("/v1/responses", {**body, "input": [decision]})
    finally:
        await client.close()
    assert answer.status == status, answer.body
    assert await conversation.turns.acount() == (2 if status == 200 else 1)
