"""What programs are told where a proxy does not let a request through to its host."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from llm.errors import ProviderDown
from llm.models import Provider
from tests.conversations.gateway.forwarding.hosts import (
    PATHS,
    Client,
    Host,
    add_model,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

BODIES = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
    "responses": {"input": "Hi", "store": False},
}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = await Client().open()
    yield client
    await client.close()


@pytest.mark.parametrize("api", BODIES)
async def test_a_refusal_of_the_proxy_is_no_message_of_the_host(client: Client, api):
    with Host(lambda _received: (407, "text/plain", b"Who are you?")) as proxy:
        model = await add_model(
            "openai",
            "openai_chat",
            "http://models.invalid",
            "m",
            options={"retry": {"attempts": 1}},
        )
        await Provider.objects.aupdate(proxy_url=proxy.url)
        answer = await client.post(PATHS[api], {**BODIES[api], "model": model})
    assert answer.status == 503
    assert answer.json()["error"]["message"] == str(ProviderDown())
    assert b"407" not in answer.body
    assert b"proxy" not in answer.body
