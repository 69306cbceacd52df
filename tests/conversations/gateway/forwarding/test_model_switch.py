"""Changing the model between two requests of a client breaks no conversation.

The client sends back what it was sent, through each API, and the hosts behind the
gateway refuse what the real ones refuse (`tests.llm.strict`).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import orjson
import pytest

from tests.conversations.gateway.forwarding.hosts import (
    PATHS,
    Client,
    Host,
    Received,
    Reply,
    add_model,
)
from tests.conversations.gateway.forwarding.strict_hosts import MODELS, strict_reply
from tests.llm.strict import messages
from tests.llm.strict.rules import PLACES, TOOL

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

PNG = "iVBORw0KGgo="


class Talk:
    """The conversation of a client of one API, which keeps it itself."""

    def __init__(self, api: str) -> None:
        self.api = api
        self.entries: list[dict[str, Any]] = []

    def body(self, model: str) -> dict[str, Any]:
        name = "input" if self.api == "responses" else "messages"
        usual: dict[str, Any] = {"model": model, name: self.entries, "stream": True}
        if self.api == "responses":
            include = ["reasoning.encrypted_content"]
            return {**usual, "store": False, "include": include, "tools": [TOOL]}
        function = {n: TOOL[n] for n in ("name", "description", "parameters")}
        if self.api == "chat":
            return {**usual, "tools": [{"type": "function", "function": function}]}
        schema = function.pop("parameters")
        tool = {**function, "input_schema": schema}
        return {**usual, "max_tokens": 9000, "tools": [tool]}

    def ask(self, text: str, *, image: bool) -> None:
        self.entries.append({"role": "user", "content": self._content(text, image)})

    def _content(self, text: str, image: bool) -> list[dict[str, Any]]:
        url = f"data:image/png;base64,{PNG}"
        source = {"type": "base64", "media_type": "image/png", "data": PNG}
        parts: dict[str, Any] = {
            "chat": ("text", {"type": "image_url", "image_url": {"url": url}}),
            "messages": ("text", {"type": "image", "source": source}),
            "responses": ("input_text", {"type": "input_image", "image_url": url}),
        }
        kind, picture = parts[self.api]
        words = {"type": kind, "text": text}
        return [words, picture] if image else [words]

    def take(self, stream: bytes) -> list[str]:
        """Keep the answer; the ids of its calls."""
        events = [
            orjson.loads(line.removeprefix(b"data: "))
            for line in stream.splitlines()
            if line.startswith(b"data: {")
        ]
        assert not any("error" in e for e in events if e.get("error")), stream
        return getattr(self, f"_take_{self.api}")(events)  # type: ignore[no-any-return]

    def _take_responses(self, events: list[dict[str, Any]]) -> list[str]:
        items = [
            event["item"]
            for event in events
            if event["type"] == "response.output_item.done"
        ]
        self.entries += items
        return [item["call_id"] for item in items if item["type"] == "function_call"]

    def _take_chat(self, events: list[dict[str, Any]]) -> list[str]:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        calls: dict[int, dict[str, Any]] = {}
        for delta in (c["delta"] for e in events for c in e.get("choices", ())):
            for name in ("content", "reasoning_content"):
                if text := delta.get(name):
                    message[name] = (message.get(name) or "") + text
            if details := delta.get("reasoning_details"):
                message.setdefault("reasoning_details", []).extend(details)
            for piece in delta.get("tool_calls", ()):
                call = calls.setdefault(
                    piece["index"], {"type": "function", "function": {"arguments": ""}}
                )
                call["id"] = piece.get("id") or call.get("id")
                function = piece["function"]
                call["function"]["name"] = function.get("name") or call["function"].get(
                    "name"
                )
                call["function"]["arguments"] += function.get("arguments") or ""
        if calls:
            message["tool_calls"] = [calls[n] for n in sorted(calls)]
        self.entries.append(message)
        return [call["id"] for call in message.get("tool_calls", ())]

    def _take_messages(self, events: list[dict[str, Any]]) -> list[str]:
        blocks: dict[int, dict[str, Any]] = {}
        texts: dict[int, str] = {}
        for event in events:
            index = event.get("index", 0)
            if event["type"] == "content_block_start":
                blocks[index] = event["content_block"]
            elif event["type"] == "content_block_delta":
                delta = event["delta"]
                for name in ("text", "thinking", "signature"):
                    if name in delta:
                        before = blocks[index].get(name) or ""
                        blocks[index][name] = before + delta[name]
                if "partial_json" in delta:
                    texts[index] = texts.get(index, "") + delta["partial_json"]
        for index, text in texts.items():
            blocks[index]["input"] = json.loads(text or "{}")
        content = [blocks[n] for n in sorted(blocks)]
        self.entries.append({"role": "assistant", "content": content})
        return [block["id"] for block in content if block["type"] == "tool_use"]

    def give(self, ids: list[str]) -> None:
        """The outputs of the calls."""
        match self.api:
            case "chat":
                self.entries += [
                    {"role": "tool", "tool_call_id": id, "content": "3 °C"}
                    for id in ids
                ]
            case "responses":
                kind = "function_call_output"
                self.entries += [
                    {"type": kind, "call_id": id, "output": "3 °C"} for id in ids
                ]
            case _:
                content = [
                    {"type": "tool_result", "tool_use_id": id, "content": "3 °C"}
                    for id in ids
                ]
                self.entries.append({"role": "user", "content": content})


class StoredTalk(Talk):
    """A conversation that the server keeps: the client sends what is new, and gets
    whole answers."""

    def __init__(self) -> None:
        super().__init__("responses")
        self._previous: str | None = None

    def body(self, model: str) -> dict[str, Any]:
        body = {**super().body(model), "store": True, "stream": False}
        if self._previous is not None:
            body["previous_response_id"] = self._previous
        return body

    def take(self, answer: bytes) -> list[str]:
        response = orjson.loads(answer)
        assert response["status"] == "completed", response["error"]
        self._previous, self.entries = response["id"], []
        calls = [i for i in response["output"] if i["type"] == "function_call"]
        return [item["call_id"] for item in calls]


def hosts() -> Iterator[tuple[str, str, str, Host]]:
    for kind, codec, model, fake in MODELS:

        def reply(received: Received, kind=kind, codec=codec, fake=fake) -> Reply:
            return strict_reply(kind, codec, fake, received)

        yield kind, codec, model, Host(reply)


@pytest.mark.parametrize("api", PATHS)
async def test_no_host_refuses_what_another_has_answered(api: str, client: Client):
    assert not await _refusals(client, partial(Talk, api))


async def test_no_host_refuses_what_is_stored_of_another(client: Client, running: None):
    assert not await _refusals(client, StoredTalk)


async def _refusals(client: Client, begin: Callable[[], Talk]) -> list[str]:
    """Of conversations that change the model, for each ordered pair of models."""
    refused: list[str] = []
    with ExitStack() as stack:
        names: list[str] = []
        for kind, codec, model, host in hosts():
            stack.enter_context(host)
            names.append(await add_model(kind, codec, host.url, model))
        for first, second in itertools.product(range(len(MODELS)), repeat=2):
            turns = names[first], names[second], names[first]
            if error := await _refusal(begin(), client, turns):
                refused.append(f"{names[first]} > {names[second]}: {error}")
    return refused


async def _refusal(talk: Talk, client: Client, models: tuple[str, ...]) -> str:
    """The first refusal of a conversation with two calls at once in each turn."""
    for model in models:
        calls = 0
        talk.ask("wish: tools", image=True)
        for _ in PLACES:
            answer = await client.post(PATHS[talk.api], talk.body(model))
            if answer.status != 200:
                return answer.body.decode()[:300]
            if not (ids := talk.take(answer.body)):
                break
            calls += len(ids)
            talk.give(ids)
        assert calls == 2
    return ""


async def test_only_the_thinking_of_another_claude_is_left_out(client: Client):
    """The rest of the client's body stays as it is, and the client is told."""
    kind, codec, fake = "anthropic", "anthropic", messages
    with Host(lambda received: strict_reply(kind, codec, fake, received)) as host:
        sonnet, haiku = [
            await add_model(kind, codec, host.url, model)
            for model in ("claude-sonnet-5-5", "claude-haiku-4-5")
        ]
        talk = Talk("messages")
        for model in (sonnet, haiku):
            talk.ask("wish: words", image=False)
            talk.entries[-1]["content"][0]["cache_control"] = {"type": "ephemeral"}
            answer = await client.post(PATHS["messages"], talk.body(model))
            talk.take(answer.body)
        talk.ask("wish: words", image=False)
        answer = await client.post(PATHS["messages"], talk.body(sonnet))
    assert answer.headers["x-parley-degraded"] == "input (without reasoning)"
    first, own, second, others, third = host.received[-1].body["messages"]
    assert [first, own, second] == talk.entries[:3]
    assert [block["type"] for block in others["content"]] == ["text", "text"]
    assert third == talk.entries[4]


@pytest.fixture
async def claudes() -> AsyncIterator[tuple[Host, str, str]]:
    """The host of two models, and their names."""
    kind, codec, fake = "anthropic", "anthropic", messages
    with Host(lambda received: strict_reply(kind, codec, fake, received)) as host:
        models = ("claude-sonnet-5-5", "claude-haiku-4-5")
        sonnet, haiku = [
            await add_model(kind, codec, host.url, name) for name in models
        ]
        yield host, sonnet, haiku


async def test_another_claude_goes_on_with_calls_that_began_with_a_thought(
    client: Client, claudes: tuple[Host, str, str]
):
    _, sonnet, haiku = claudes
    talk = Talk("messages")
    budget = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    talk.ask("wish: tools", image=False)
    answer = await client.post(PATHS["messages"], talk.body(sonnet) | budget)
    talk.give(talk.take(answer.body))
    answer = await client.post(PATHS["messages"], talk.body(haiku) | budget)
    assert answer.status == 200, answer.body
    lost = answer.headers["x-parley-degraded"]
    assert lost == "thinking (another model began the turn)"


async def test_many_turns_of_another_claude_cost_one_more_call_than_one(
    client: Client, claudes: tuple[Host, str, str]
):
    host, sonnet, haiku = claudes
    talk = Talk("messages")
    for _ in range(6):
        talk.ask("wish: words", image=False)
        answer = await client.post(PATHS["messages"], talk.body(sonnet))
        talk.take(answer.body)
    talk.ask("wish: words", image=False)
    before = len(host.received)
    answer = await client.post(PATHS["messages"], talk.body(haiku))
    assert answer.status == 200, answer.body
    assert len(host.received) - before <= 3
