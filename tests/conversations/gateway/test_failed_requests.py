"""A request that names a conversation and failed is sent again, as SDKs do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.models import BranchChoice, Conversation, Turn
from tests.conversations.gateway.forwarding.hosts import (
    CODECS,
    PATHS,
    Client,
    Host,
    Received,
    Reply,
    add_model,
    canned_reply,
    data,
)

pytestmark = pytest.mark.django_db(transaction=True)

ADD = {"type": "function", "name": "add", "parameters": {"type": "object"}}


def answered(received: Received) -> Reply:
    return canned_reply("chat", received)


def refused(received: Received) -> Reply:
    return 400, "application/json", json.dumps({"error": {"message": "No."}}).encode()


def calling(received: Received) -> Reply:
    call = {"index": 0, "id": "call_1", "type": "function"}
    delta = {"tool_calls": [{**call, "function": {"name": "add", "arguments": "{}"}}]}
    choice = {"index": 0, "delta": delta, "finish_reason": "tool_calls"}
    frames = data({"id": "c", "choices": [choice]}) + b"data: [DONE]\n\n"
    return 200, "text/event-stream", frames


@pytest.fixture
async def client(running) -> AsyncIterator[Client]:
    client = await Client().open()
    yield client
    await client.close()


async def respond(client: Client, status: int = 200, **body: Any) -> Any:
    answer = await client.post(PATHS["responses"], body)
    assert answer.status == status, answer.body
    return answer.json()


async def test_a_question_that_failed_is_asked_once(client):
    with Host(answered) as host:
        model = await add_model("openai", CODECS["chat"], host.url, "new-model")
        first = await respond(client, model=model, input="One")
        again = {"model": model, "conversation": first["conversation"], "input": "Two"}
        host.reply = refused
        await respond(client, 400, **again)
        await respond(client, 400, **again)
        host.reply = answered
        await respond(client, **again)
        roles = [each["role"] for each in host.received[-1].body["messages"]]
    assert roles == ["user", "assistant", "user"]


async def test_outputs_of_a_request_that_failed_are_delivered_again(client):
    with Host(calling) as host:
        model = await add_model("openai", CODECS["chat"], host.url, "new-model")
        tools = {"model": model, "tools": [ADD]}
        first = await respond(client, **tools, input="Add")
        output = {"type": "function_call_output", "call_id": "call_1", "output": "3"}
        again = {**tools, "conversation": first["conversation"], "input": [output]}
        host.reply = refused
        await respond(client, 400, **again)
        host.reply = answered
        answer = await respond(client, **again)
        roles = [each["role"] for each in host.received[-1].body["messages"]]
    assert answer["status"] == "completed"
    assert roles == ["user", "assistant", "tool"]


async def test_an_empty_request_continues_the_one_that_failed(client):
    with Host(answered) as host:
        model = await add_model("openai", CODECS["chat"], host.url, "new-model")
        first = await respond(client, model=model, input="One")
        named = {"model": model, "conversation": first["conversation"]}
        host.reply = refused
        await respond(client, 400, **named, input="Two")
        host.reply = answered
        await respond(client, **named, input=[])
        contents = [each["content"] for each in host.received[-1].body["messages"]]
    assert contents[-1] == "Two"


@pytest.mark.parametrize("is_first", [False, True])
async def test_a_failed_request_that_is_looked_at_ends_no_history(client, is_first):
    with Host(answered) as host:
        model = await add_model("openai", CODECS["chat"], host.url, "new-model")
        owner = await User.objects.aget()
        talk = await Conversation.objects.acreate(owner=owner)
        named = {"model": model, "conversation": talk.pk}
        if not is_first:
            await respond(client, **named, input="One")
        host.reply = refused
        await respond(client, 400, **named, input="Two")
        host.reply = answered
        await respond(client, **named, input="Two")
        failed = await Turn.objects.aget(status=Turn.Status.FAILED)
        await BranchChoice.objects.acreate(conversation=talk, user=owner, leaf=failed)
        await respond(client, **named, input="Three")
        await respond(client, **named, input="Four")
        messages = host.received[-1].body["messages"]
    asked = [each["content"] for each in messages if each["role"] == "user"]
    assert asked == ["One", "Two", "Three", "Four"][is_first:]
