"""Hosts get their proofs of reasoning back from clients of another API.

The vendors' own SDKs keep and return an answer as they do it for anybody, and the hosts
refuse what the real ones refuse (`tests.llm.strict`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import orjson
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from conversations.models import AccessToken
from conversations.models.access_token import Scope
from tests.conversations.gateway.forwarding.hosts import (
    CODECS,
    Client,
    Host,
    Received,
    Reply,
    add_model,
    canned_reply,
)
from tests.conversations.gateway.forwarding.strict_hosts import (
    MODELS,
    issuer_of,
    strict_reply,
)
from tests.llm.strict import chat, gemini, messages, responses
from tests.llm.strict.rules import TOOL, seal

pytestmark = pytest.mark.django_db(transaction=True)

FIRST_OF_SECOND_TURN = 3  # the number of its first request
FUNCTION = {n: TOOL[n] for n in ("name", "description", "parameters")}


class Conversation:
    """A program that uses an SDK. `turn` runs the tools until the model is done."""

    def __init__(self, http: httpx2.AsyncClient, secret: str, model: str) -> None:
        self.http, self.secret, self.model = http, secret, model
        self.history: list[Any] = []
        self.degraded: list[str] = []  # names in the headers of the latest turn
        self.own: list[Any] = []  # tools of this server

    async def turn(self, text: str, *, stream: bool) -> None:
        self.history.append({"role": "user", "content": text})
        self.degraded = []
        self.http.event_hooks["response"] = [self._note]
        while await self._answer(stream=stream):
            pass

    def _openai(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(
            api_key=self.secret,
            base_url="http://parley.test/v1",
            http_client=self.http,
            max_retries=0,
        )

    async def _note(self, response: httpx2.Response) -> None:
        if named := response.headers.get("x-parley-degraded"):
            self.degraded = named.split(", ")

    async def _answer(self, *, stream: bool) -> bool:
        """Whether the model has called tools."""
        raise NotImplementedError


class ChatProgram(Conversation):
    async def _answer(self, *, stream: bool) -> bool:
        client = self._openai()
        tools: Any = [{"type": "function", "function": FUNCTION}, *self.own]
        body = {"model": self.model, "messages": self.history, "tools": tools}
        if stream:
            async with client.chat.completions.stream(**body) as events:
                async for _ in events:
                    pass
                answer = await events.get_final_completion()
        else:
            answer = await client.chat.completions.create(**body)
        message = answer.choices[0].message
        self.history.append(message.model_dump(exclude_none=True))
        calls = message.tool_calls or ()
        self.history += [
            {"role": "tool", "tool_call_id": call.id, "content": "3 °C"}
            for call in calls
        ]
        return bool(calls)


class SignedCallsProgram(ChatProgram):
    """Returns what Google's own Chat Completions has, as Vercel's SDK does: the fields
    of calls, and no `reasoning_details`."""

    async def _answer(self, *, stream: bool) -> bool:
        has_called = await super()._answer(stream=stream)
        for message in self.history:
            if message["role"] == "assistant":
                message.pop("reasoning_details", None)
        return has_called


class MessagesProgram(Conversation):
    async def _answer(self, *, stream: bool) -> bool:
        client = anthropic.AsyncAnthropic(
            api_key=self.secret,
            base_url="http://parley.test",
            http_client=self.http,
            max_retries=0,
        )
        schema = {"input_schema": FUNCTION["parameters"]}
        named = {n: FUNCTION[n] for n in ("name", "description")}
        body: Any = {
            "model": self.model,
            "messages": self.history,
            "tools": [{**named, **schema}, *self.own],
            "max_tokens": 9000,
            "thinking": {"type": "adaptive"},
        }
        if stream:
            async with client.messages.stream(**body) as events:
                answer = await events.get_final_message()
        else:
            answer = await client.messages.create(**body)
        self.history.append({"role": "assistant", "content": answer.content})
        calls = [block for block in answer.content if block.type == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": "3 °C"}
            for call in calls
        ]
        if results:
            self.history.append({"role": "user", "content": results})
        return bool(calls)


class ResponsesProgram(Conversation):
    """Sends the items back that it has received."""

    async def _answer(self, *, stream: bool) -> bool:
        client = self._openai()
        body: Any = {
            "model": self.model,
            "input": self.history,
            "tools": [{"type": "function", "strict": False, **FUNCTION}, *self.own],
            "store": False,
            **self.options,
        }
        if stream:
            async with client.responses.stream(**body) as events:
                answer = await events.get_final_response()
        else:
            answer = await client.responses.create(**body)
        items = [item.model_dump(exclude_none=True) for item in answer.output]
        self.history += map(self.keep, items)
        calls = [item for item in items if item["type"] == "function_call"]
        self.history += [
            {
                "type": "function_call_output",
                "call_id": call["call_id"],
                "output": "3 °C",
            }
            for call in calls
        ]
        return bool(calls)

    options: Any = {"include": ["reasoning.encrypted_content"]}

    def keep(self, item: dict[str, Any]) -> dict[str, Any]:
        return item


class KnownFieldsProgram(ResponsesProgram):
    """Rebuilds items from the fields that it knows, without their ids, as Codex does
    and Vercel's SDK."""

    def keep(self, item: dict[str, Any]) -> dict[str, Any]:
        known = ("type", "role", "summary", "encrypted_content")
        known += ("call_id", "name", "arguments", "input")
        fields = {name: item[name] for name in known if name in item}
        if item["type"] == "message":
            texts = [part["text"] for part in item["content"]]
            fields["content"] = [{"type": "output_text", "text": t} for t in texts]
        return fields


class UnaskingProgram(ResponsesProgram):
    options: Any = {}


PROGRAMS = {
    "chat": ChatProgram,
    "messages": MessagesProgram,
    "responses": ResponsesProgram,
    "responses known": KnownFieldsProgram,
    "responses unasking": UnaskingProgram,
}
WITH_FIELDS = ("chat", "messages")  # APIs with a field of their own for a seal


def foreign_hosts() -> Iterator[Any]:
    for api in PROGRAMS:
        for kind, codec, model, fake in MODELS:
            if codec != CODECS[api.partition(" ")[0]]:
                yield pytest.param(api, kind, codec, model, fake, id=f"{api}-{model}")


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("api", "kind", "codec", "model", "fake"), [*foreign_hosts()])
async def test_a_host_gets_back_what_it_has_issued(
    api: str,
    kind: str,
    codec: str,
    model: str,
    fake: Any,
    stream: bool,
    client: Client,
    http: httpx2.AsyncClient,
):
    answers: list[bytes] = []

    def reply(received: Received) -> Reply:
        status, content_type, data = strict_reply(kind, codec, fake, received)
        answers.append(data)
        return status, content_type, data

    with Host(reply) as host:
        name = await add_model(kind, codec, host.url, model)
        program = PROGRAMS[api](http, client.secret, name)
        await program.turn("wish: steps", stream=stream)
        await program.turn("wish: tools", stream=stream)
    assert len(host.received) == 5
    issued: list[Any] = []
    for number, received in enumerate(host.received):
        if number == FIRST_OF_SECOND_TURN and api != "chat":
            issued = []  # its answers end with their text, whose proof nobody demands
        else:
            found = own(fake, received.body)
            assert found[len(found) - len(issued) :] == issued, number
        issued += issued_by(fake, answers[number])
        assert issued, number


def own(fake: Any, body: dict[str, Any]) -> list[Any]:
    """What a body has of the model's earlier answers."""
    found = fake.assistant_content(body)
    if fake is responses:
        kept = ("reasoning", "function_call", "custom_tool_call", "web_search_call")
        return [
            item
            for item in found
            if item.get("type") in kept or item.get("role") == "assistant"
        ]
    return flat(found)


def issued_by(fake: Any, stream: bytes) -> list[Any]:
    return flat(fake.issued(stream))


def flat(found: list[Any]) -> list[Any]:
    if any(isinstance(each, list) for each in found):
        return [block for blocks in found for block in blocks]
    return list(found)


GEMINI = ("gemini", "gemini", "gemini-3.8-flash", gemini)
CLAUDE = ("anthropic", "anthropic", "claude-sonnet-5-5", messages)
DEEPSEEK = ("deepseek", "openai_chat", "deepseek-v4-pro", chat)


def strict_host(kind: str, codec: str, fake: Any) -> Host:
    return Host(lambda received: strict_reply(kind, codec, fake, received))


@pytest.mark.parametrize("stranger", ["altered", "another host", "another user"])
@pytest.mark.parametrize("api", WITH_FIELDS)
async def test_a_foreign_seal_is_left_out_and_named(
    api: str, stranger: str, client: Client, http: httpx2.AsyncClient
):
    kind, codec, model, fake = GEMINI
    with strict_host(kind, codec, fake) as host:
        name = await add_model(kind, codec, host.url, model)
        program = PROGRAMS[api](http, client.secret, name)
        await program.turn("wish: tools", stream=False)
        assert program.degraded == []
        assert b"FAKE" in orjson.dumps(host.received[-1].body)
        match stranger:
            case "altered":
                program.history = altered(program.history)
            case "another host":
                other = "gemini-3.9-pro"
                program.model = await add_model(kind, codec, host.url, other)
            case "another user":
                program.secret = await other_secret()
        await program.turn("Hi", stream=True)
    is_known = stranger == "another host"
    name = "input (reasoning of another model)" if is_known else FIELDS[api]
    assert program.degraded == [name]
    assert b"FAKE" not in orjson.dumps(host.received[-1].body)


@pytest.mark.parametrize("native", [CLAUDE, DEEPSEEK], ids=["messages", "chat"])
async def test_a_host_of_the_clients_api_gets_no_seal(
    native: Any, client: Client, http: httpx2.AsyncClient
):
    kind, codec, model, fake = native
    api = "messages" if codec == "anthropic" else "chat"
    with (
        strict_host(*GEMINI[:2], gemini) as host,
        strict_host(kind, codec, fake) as other,
    ):
        name = await add_model(*GEMINI[:2], host.url, GEMINI[2])
        program = PROGRAMS[api](http, client.secret, name)
        await program.turn("wish: tools", stream=True)
        program.model = await add_model(kind, codec, other.url, model)
        await program.turn("Hi", stream=True)
    assert b"parley" not in orjson.dumps([each.body for each in other.received])
    assert program.degraded == [FIELDS[api]]


FIELDS = {"chat": "messages.reasoning_details", "messages": "messages.thinking"}


def altered(history: list[Any]) -> list[Any]:
    plain = [
        {**each, "content": [block.model_dump() for block in each["content"]]}
        if isinstance(each.get("content"), list) and each["role"] == "assistant"
        else each
        for each in history
    ]
    text = json.dumps(plain)
    assert "parley:proofs:f1:gAAAA" in text
    return list(
        json.loads(text.replace("parley:proofs:f1:gAAAA", "parley:proofs:f1:x"))
    )


async def other_secret() -> str:
    other = await User.objects.acreate(username="ada", is_superuser=True)
    _, secret = await sync_to_async(AccessToken.issue)(other, "t", scopes=Scope.values)
    return str(secret)


@pytest.mark.parametrize("stream", [True, False])
async def test_gemini_gets_signatures_that_a_client_has_in_its_calls(
    stream: bool, client: Client, http: httpx2.AsyncClient
):
    kind, codec, model, fake = GEMINI
    answers: list[bytes] = []

    def reply(received: Received) -> Reply:
        status, content_type, data = strict_reply(kind, codec, fake, received)
        answers.append(data)
        return status, content_type, data

    with (
        Host(reply) as host,
        Host(lambda received: canned_reply("chat", received)) as other,
    ):
        name = await add_model(kind, codec, host.url, model)
        program = SignedCallsProgram(http, client.secret, name)
        await program.turn("wish: tools", stream=stream)
        program.model = await add_model("openrouter", CODECS["chat"], other.url, "new")
        await program.turn("Hi", stream=stream)
    issued = [p for p in issued_by(fake, answers[0]) if "functionCall" in p]
    found = [p for p in own(fake, host.received[1].body) if "functionCall" in p]
    assert issued
    assert found == issued
    assert b"parley:" not in orjson.dumps(other.received[0].body)


async def test_gemini_gets_signatures_of_googles_own_chat_completions(client: Client):
    kind, codec, model, fake = GEMINI
    part = {"functionCall": {"id": "c1", "name": "look", "args": {"at": "north"}}}
    with strict_host(kind, codec, fake) as host:
        name = await add_model(kind, codec, host.url, model)
        signature = seal(issuer_of(kind, codec, model), part)
        function = {"name": "look", "arguments": '{"at": "north"}'}
        call = {"id": "c1", "type": "function", "function": function}
        call["extra_content"] = {"google": {"thought_signature": signature}}
        history = [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "3 °C"},
        ]
        tools = [{"type": "function", "function": FUNCTION}]
        body = {"model": name, "messages": history, "tools": tools}
        answer = await client.post("/v1/chat/completions", body)
    assert answer.status == 200, answer.body
    assert own(fake, host.received[0].body) == [{**part, "thoughtSignature": signature}]
