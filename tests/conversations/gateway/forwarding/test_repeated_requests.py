"""`Idempotency-Key` over `/v1`: a host is asked once, and a key belongs to one body."""

from __future__ import annotations

import pytest

from tests.conversations.gateway.forwarding.hosts import (
    Client,
    Host,
    add_model,
    canned_reply,
)

pytestmark = pytest.mark.django_db(transaction=True)


async def test_a_host_is_asked_once_and_another_body_is_refused():
    client = await Client().open()
    with Host(lambda received: canned_reply("chat", received)) as host:
        name = await add_model("openai_compatible", "openai_chat", host.url, "m")

        async def ask(text: str, key: str) -> tuple[int, bytes]:
            messages = [{"role": "user", "content": text}]
            body = {"model": name, "messages": messages}
            answer = await client.post(
                "/v1/chat/completions", body, {"idempotency-key": key}
            )
            return answer.status, answer.body

        first = await ask("Hi", "one")
        assert first[0] == 200
        assert await ask("Hi", "one") == first
        status, body = await ask("Bye", "one")
        assert status == 409
        assert b"idempotency_key_reused" in body
        assert len(host.received) == 1
        assert (await ask("Hi", "two"))[0] == 200
        assert len(host.received) == 2
    await client.close()
