"""The row of a forwarded request's call names the end user that the client named."""

from __future__ import annotations

from typing import Any

import pytest

from llm.models import ModelCall
from tests.conversations.gateway.forwarding.hosts import (
    CODECS,
    FORWARDED,
    PATHS,
    Client,
    Host,
    add_model,
    canned_reply,
)

pytestmark = pytest.mark.django_db(transaction=True)

_HI = [{"role": "user", "content": "Hi"}]
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"messages": _HI},
    "messages": {"messages": _HI, "max_tokens": 50},
    "responses": {"input": "Hi", "store": False},
}
NAMING: dict[str, list[dict[str, Any]]] = {
    "chat": [{"user": "eve"}, {"safety_identifier": "eve", "user": "old"}],
    "messages": [{"metadata": {"user_id": "eve"}}],
    "responses": [{"user": "eve"}, {"safety_identifier": "eve", "user": "old"}],
}
CASES = [(api, named) for api in FORWARDED for named in NAMING[api]]


async def first_call(api: str, fields: dict[str, Any]) -> ModelCall:
    client = await Client().open()
    try:
        with Host(lambda received: canned_reply(api, received)) as host:
            kind = "anthropic" if api == "messages" else "openai"
            model = await add_model(kind, CODECS[api], host.url, "new-model")
            body = {**BODIES[api], **fields, "model": model}
            answer = await client.post(PATHS[api], body)
    finally:
        await client.close()  # writes the rows that follow their answers
    assert answer.status == 200, answer.body
    return await ModelCall.objects.aget()


@pytest.mark.parametrize(("api", "named"), CASES)
async def test_the_row_names_the_end_user(api: str, named: dict[str, Any]):
    assert (await first_call(api, named)).end_user == "eve"


@pytest.mark.parametrize("api", FORWARDED)
@pytest.mark.parametrize("name", [7, ["eve"], {"eve": 1}, "a\nb"])
async def test_a_name_that_is_no_text_names_nobody(api: str, name: object):
    fields = {"metadata": {"user_id": name}} if api == "messages" else {"user": name}
    assert (await first_call(api, fields)).end_user == ""
