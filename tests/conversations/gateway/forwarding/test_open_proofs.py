"""Proofs of reasoning in answers of Chat Completions that are written anew for a client
of the same API: they stay as they are, both ways."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest

from project.server.application import application
from tests.conversations.gateway.forwarding.hosts import (
    Client,
    Host,
    Received,
    Reply,
    add_model,
    data,
)
from tests.llm.strict.rules import TOOL

pytestmark = pytest.mark.django_db(transaction=True)

DETAILS = [
    {"type": "reasoning.text", "text": "Hm.", "signature": "c2ln", "index": 0},
    {"type": "reasoning.encrypted", "data": "ZW5j", "id": "r1", "index": 1},
]
SIGNED = {"google": {"thought_signature": "dGhvdWdodA=="}}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"at":"north"}'},
    "extra_content": SIGNED,
}
OTHER = {**CALL, "id": "call_2"}
MESSAGE = {
    "role": "assistant",
    "content": None,
    "reasoning_details": DETAILS,
    "tool_calls": [CALL, OTHER],
}
FUNCTION = {n: TOOL[n] for n in ("name", "description", "parameters")}


def reply(received: Received) -> Reply:
    """Calls twice at once; then a text, if the proofs have come back."""
    is_first = len(received.body["messages"]) == 1
    message = MESSAGE if is_first else {"role": "assistant", "content": "Done"}
    finish = "tool_calls" if is_first else "stop"
    if not is_first:
        returned = received.body["messages"][1]
        calls = [call.get("extra_content") for call in returned["tool_calls"]]
        if returned.get("reasoning_details") != DETAILS or calls != [SIGNED, SIGNED]:
            error = {"error": {"message": "a proof is missing or was changed"}}
            return 400, "application/json", json.dumps(error).encode()
    choice = {"index": 0, "finish_reason": finish}
    head = {"id": "c1", "created": 1, "model": "m"}
    if received.body.get("stream"):
        calls = [
            {"index": n, **call} for n, call in enumerate(message.get("tool_calls", []))
        ]
        delta = {**message, "tool_calls": calls}
        chunk = {**head, "object": "chat.completion.chunk"}
        frames = [{**chunk, "choices": [{**choice, "delta": delta}]}]
        stream = b"".join(map(data, frames)) + b"data: [DONE]\n\n"
        return 200, "text/event-stream", stream
    whole = {**head, "object": "chat.completion"}
    body = {**whole, "choices": [{**choice, "message": message}]}
    return 200, "application/json", json.dumps(body).encode()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"explain": True}, {"cache_seconds": 60}, {"buffer_tool_calls": True}],
    ids=["forwarded", "explained", "may be cached", "buffered"],
)
async def test_proofs_stay_open(options: Any, stream: bool, client: Client):
    transport = httpx2.ASGITransport(application)
    history: list[Any] = [{"role": "user", "content": "Hi"}]
    with Host(reply) as host:
        model = await add_model("openrouter", "openai_chat", host.url, "new")
        async with httpx2.AsyncClient(transport=transport) as http:
            program = openai.AsyncOpenAI(
                api_key=client.secret,
                base_url="http://parley.test/v1",
                http_client=http,
                max_retries=0,
            )
            body = {"model": model, "extra_body": {"parley": options}}
            for _ in range(2):
                await ask(program, {**body, "messages": history}, stream=stream)
    assert history[-1]["content"] == "Done"


async def ask(program: openai.AsyncOpenAI, body: Any, *, stream: bool) -> None:
    """Adds the answer, and what its tools return, to the messages of `body`."""
    body["tools"] = [{"type": "function", "function": FUNCTION}]
    if stream:
        async with program.chat.completions.stream(**body) as events:
            answer: Any = await events.get_final_completion()
    else:
        answer = await program.chat.completions.create(**body)
    message = answer.choices[0].message
    body["messages"].append(message.model_dump(exclude_none=True))
    body["messages"] += [
        {"role": "tool", "tool_call_id": call.id, "content": "3 °C"}
        for call in message.tool_calls or ()
    ]
