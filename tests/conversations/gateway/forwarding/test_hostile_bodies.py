"""Bodies that no SDK sends: they pass no limit, and are refused with a reason."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations.access.limits import applicable
from conversations.models import UsageLimit
from llm.wire.forwarding.sealed_text import PREFIX
from tests.conversations.gateway.forwarding.hosts import (
    CODECS,
    PATHS,
    Answer,
    Client,
    Host,
    Received,
    Reply,
    add_model,
    canned_reply,
)

pytestmark = pytest.mark.django_db(transaction=True)

KINDS = {"chat": "openai_compatible", "messages": "anthropic"}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    opened = await Client().open()
    yield opened
    applicable.clear_cache()
    await opened.close()


async def ask(
    client: Client,
    fields: dict[str, Any],
    api: str = "chat",
    headers: dict[str, str] | None = None,
    **of_model: Any,
) -> tuple[Answer, int]:
    """The answer, and how many requests the host got."""
    with Host(lambda received: canned_reply(api, received)) as host:
        name = await add_model(KINDS[api], CODECS[api], host.url, "m", **of_model)
        messages = [{"role": "user", "content": "Hi"}]
        body = {"model": name, "messages": messages, **fields}
        answer = await client.post(PATHS[api], body, headers)
        return answer, len(host.received)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@sync_to_async
def set_limit() -> None:
    UsageLimit.objects.create(period="month", tokens=1_000_000)
    applicable.clear_cache()


@pytest.mark.parametrize("wanted", [1e6, "1000000", [5]])
async def test_a_limit_of_output_in_another_form_is_no_way_past_that_of_staff(
    wanted: Any, client: Client
):
    capabilities = {"max_output_tokens": 100}
    answer, count = await ask(client, {"max_tokens": wanted}, capabilities=capabilities)
    assert (answer.status, count) == (400, 0)


async def test_a_type_that_is_no_text_is_left_to_the_host(client: Client):
    form = {"response_format": {"type": ["json_object"]}}
    answer, count = await ask(client, form, capabilities={"json_mode": False})
    assert (answer.status, count) == (200, 1)


async def test_a_deep_body_is_refused_with_an_idempotency_key(client: Client):
    headers = {"idempotency-key": "k"}
    answer, count = await ask(client, {"x": nested(300)}, headers=headers)
    assert (answer.status, count) == (400, 0)
    assert "nested too deeply" in answer.json()["error"]["message"]


async def test_a_deep_body_is_refused_under_a_limit_of_use(client: Client):
    await set_limit()
    answer, count = await ask(client, {"x": nested(300)})
    assert (answer.status, count) == (400, 0)
    assert "nested too deeply" in answer.json()["error"]["message"]


async def test_a_deep_body_with_a_seal_is_refused(client: Client):
    sealed = [{"type": "reasoning.encrypted", "data": f"{PREFIX}x"}]
    said = {"role": "assistant", "content": "Hi", "reasoning_details": sealed}
    with Host(lambda received: canned_reply("chat", received)) as host:
        name = await add_model(KINDS["chat"], CODECS["chat"], host.url, "m")
        deep = {"role": "user", "content": "Hi", "x": "DEEP"}
        body = json.dumps({"model": name, "messages": [said, deep]}).encode()
        levels = b"[" * 1015 + b"]" * 1015
        answer = await client.post_bytes(PATHS["chat"], body.replace(b'"DEEP"', levels))
    assert (answer.status, host.received) == (400, [])


async def test_too_many_calls_are_no_fault_of_the_host(client: Client):
    function = {"name": "f", "arguments": "{}"}
    calls = [
        {"id": f"c{n}", "type": "function", "function": function} for n in range(1001)
    ]
    said = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "tool_calls": calls},
    ]
    with Host(lambda received: canned_reply("messages", received)) as host:
        name = await add_model("anthropic", CODECS["messages"], host.url, "m")
        body = {"model": name, "messages": said}
        answer = await client.post(PATHS["chat"], body)
    assert (answer.status, host.received) == (400, [])
    assert "too many items or calls" in answer.json()["error"]["message"]


async def test_a_stream_that_breaks_off_ends_in_order_after_an_odd_body(client: Client):
    """Some hosts take tools in the form of another API."""

    def reply(received: Received) -> Reply:
        status, kind, whole = canned_reply("responses", received)
        return status, kind, whole[: whole.index(b"event: response.output_item.done")]

    tool = {"type": "function", "function": {"name": "f"}}
    with Host(reply) as host:
        name = await add_model("openai", CODECS["responses"], host.url, "m")
        body = {"model": name, "input": "Hi", "stream": True, "store": False}
        answer = await client.post(PATHS["responses"], {**body, "tools": [tool]})
    assert len(host.received) == 1, answer.body
    assert b"event: response.failed" in answer.body


async def test_more_tokens_than_a_column_holds_are_beyond_a_limit(client: Client):
    await set_limit()
    answer, count = await ask(client, {"n": 2**62, "max_tokens": 2**62})
    assert (answer.status, count) == (429, 0)


@pytest.mark.parametrize("beta", ["a\r\nX-Evil: 1", "é", "\N{EURO SIGN}"])
async def test_what_no_header_can_hold_is_refused(beta: str, client: Client):
    fields = {"max_tokens": 5, "betas": [beta]}
    answer, count = await ask(client, fields, api="messages")
    assert (answer.status, count) == (400, 0)
    assert "anthropic-beta" in answer.json()["error"]["message"]


@pytest.mark.parametrize("content", [5, True, {"a": 1}])
async def test_content_of_another_type_is_left_to_the_host(
    content: Any, client: Client
):
    roles = ("user", "assistant")
    messages = [{"role": role, "content": content} for role in roles]
    answer, count = await ask(client, {"messages": messages})
    assert (answer.status, count) == (200, 1)
