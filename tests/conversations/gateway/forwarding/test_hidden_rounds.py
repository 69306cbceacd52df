"""Proofs after one of Parley's own tools has run inside a request: the client's next
request carries them to their host, with the calls that the client has not seen.

The programs are those of `test_sealed_proofs`, and the hosts as strict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import orjson
import pytest
from asgiref.sync import sync_to_async

from tests.conversations.gateway.forwarding.hosts import (
    Client,
    Host,
    Received,
    Reply,
    add_model,
)
from tests.conversations.gateway.forwarding.strict_hosts import MODELS, strict_reply
from tests.conversations.gateway.forwarding.test_sealed_proofs import (
    PROGRAMS,
    issued_by,
    own,
)
from tools.models import Tool

pytestmark = pytest.mark.django_db(transaction=True)

OWN = {"type": "parley:tools", "names": ["calculator"]}


def rows() -> Iterator[Any]:
    for api in PROGRAMS:
        for kind, codec, model, fake in MODELS:
            if (kind, codec) == ("openai", "openai_chat"):
                continue  # has no proofs
            yield pytest.param(
                api, kind, codec, model, fake, id=f"{api}-{kind}-{codec}-{model}"
            )


class RenamingHost:
    """Its model calls Parley's tool where the strict host calls the client's for the
    first time in a turn."""

    def __init__(self, kind: str, codec: str, fake: Any) -> None:
        self._host = kind, codec, fake
        self.answers: list[bytes] = []
        self.refusals: list[bytes] = []

    def reply(self, received: Received) -> Reply:
        text = orjson.dumps(received.body).replace(b'"calculator"', b'"look"')
        known = Received(received.path, received.headers, orjson.loads(text))
        status, kind, data = strict_reply(*self._host, known)
        if status >= 400:
            self.refusals.append(data)
        if not self.answers:
            data = data.replace(b'"look"', b'"calculator"')
        self.answers.append(data)
        return status, kind, data


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("api", "kind", "codec", "model", "fake"), [*rows()])
async def test_a_host_gets_its_proofs_back_with_the_calls_of_parleys_tools(
    api: str,
    kind: str,
    codec: str,
    model: str,
    fake: Any,
    stream: bool,
    client: Client,
    http: httpx2.AsyncClient,
):
    await sync_to_async(Tool.objects.sync)()
    renaming = RenamingHost(kind, codec, fake)
    with Host(renaming.reply) as host:
        name = await add_model(kind, codec, host.url, model)
        program = PROGRAMS[api](http, client.secret, name)
        program.own = [OWN]
        await program.turn("wish: steps", stream=stream)
        await program.turn("Hi", stream=stream)
    assert renaming.refusals == []
    assert len(host.received) == 4
    issued = [each for a in renaming.answers[:2] for each in issued_by(fake, a)]
    found = own(fake, host.received[2].body)
    assert issued
    assert found[-len(issued) :] == issued
    assert b"parley:" not in orjson.dumps(host.received[2].body)


async def test_a_client_that_offers_no_tools_later_keeps_the_proofs(
    client: Client, http: httpx2.AsyncClient
):
    """Its body is forwarded then as it is, but for its history."""
    await sync_to_async(Tool.objects.sync)()
    kind, codec, model, fake = next(m for m in MODELS if m[0] == "deepseek")
    renaming = RenamingHost(kind, codec, fake)
    with Host(renaming.reply) as host:
        name = await add_model(kind, codec, host.url, model)
        program = PROGRAMS["chat"](http, client.secret, name)
        program.own = [OWN]
        await program.turn("wish: steps", stream=True)
        program.own = []
        await program.turn("Hi", stream=True)
    assert renaming.refusals == []
    assert program.degraded == []
    sent = orjson.dumps(host.received[-1].body)
    assert b"parley:" not in sent
    assert b"calculator" in sent
    issued = [each for a in renaming.answers for each in issued_by(fake, a)]
    found = own(fake, host.received[-1].body)
    assert found
    assert found == issued[: len(found)]


def detailed(number: int, name: str, arguments: str) -> dict[str, Any]:
    """An assistant's message of OpenRouter with all its proofs."""
    function = {"name": name, "arguments": arguments}
    signed = {"google": {"thought_signature": f"c2ln{number}"}}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    encrypted = {"type": "reasoning.encrypted", "data": f"ZW5j{number}", "index": 1}
    text = {"type": "reasoning.text", "text": "Hm.", "signature": f"c{number}"}
    return {
        "role": "assistant",
        "content": None,
        "reasoning_details": [{**text, "index": 0}, encrypted],
        "tool_calls": [{**call, "extra_content": signed}],
    }


@pytest.mark.parametrize("stream", [True, False])
async def test_details_of_openrouter_come_back_past_a_hidden_call(
    stream: bool, client: Client, http: httpx2.AsyncClient
):
    await sync_to_async(Tool.objects.sync)()
    answers = [
        detailed(1, "calculator", '{"expression": "2+3"}'),
        detailed(2, "look", '{"at": "north"}'),
    ]

    def reply(received: Received) -> Reply:
        count = sum(m["role"] == "assistant" for m in received.body["messages"])
        is_last = count >= len(answers)
        message = {"role": "assistant", "content": "Done"}
        message = message if is_last else answers[count]
        finish = "stop" if is_last else "tool_calls"
        choice = {"index": 0, "finish_reason": finish, "message": message}
        whole = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m"}
        body = {**whole, "choices": [choice]}
        return 200, "application/json", orjson.dumps(body)

    with Host(reply) as host:
        name = await add_model("openrouter", "openai_chat", host.url, "new")
        program = PROGRAMS["chat"](http, client.secret, name)
        program.own = [OWN]
        await program.turn("Hi", stream=stream)
    sent = [m for m in host.received[2].body["messages"] if m["role"] == "assistant"]
    names = ("reasoning_details", "tool_calls")
    assert [{n: m[n] for n in names} for m in sent] == [
        {n: m[n] for n in names} for m in answers
    ]
