"""What programs are told where a request is not let through to its host."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from llm.errors import ProviderDown
from llm.http.outbound_hosts import HostNotListed
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


@pytest.mark.parametrize("api", BODIES)
async def test_a_host_that_is_not_listed_is_named_as_such(
    client: Client, api, settings
):
    settings.OUTBOUND_HOSTS = ["api.example.org"]
    model = await add_model("openai", "openai_chat", "http://models.invalid", "m")
    answer = await client.post(PATHS[api], {**BODIES[api], "model": model})
    assert answer.status == 403
    assert str(HostNotListed()) in answer.json()["error"]["message"]
    if api != "messages":  # Anthropic's errors have no code
        assert answer.json()["error"]["code"] == "host_not_listed"
