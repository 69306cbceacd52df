"""A coding agent's prompt cache works through the gateway as by a direct connection.

One host caches as Anthropic does: at each `cache_control` it stores the prefix up to
there for its time to live, and reads the longest stored prefix. The other caches as
OpenAI does, without marks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tests.conversations.gateway.forwarding.hosts import (
    CODECS,
    PATHS,
    Client,
    Host,
    Received,
    Reply,
    add_model,
    canned_reply,
)
from tools.models import Tool

pytestmark = pytest.mark.django_db(transaction=True)

TURNS = 50
_SECONDS = {"5m": 300, "1h": 3600}
_MINUTES = (1, 2, 1, 7, 1, 1, 30, 1, 1, 70)  # between two requests, in turn


@dataclass
class CachingHost:
    """Counts the tokens, a byte each, that a request reads from the cache."""

    now: float = 0.0  # seconds
    read: int = 0
    total: int = 0
    _until: dict[str, float] = field(default_factory=dict)  # by the hash of a prefix

    def count(self, body: dict[str, Any]) -> tuple[int, int]:
        """Tokens read, and all tokens of the request."""
        digest, size, read = hashlib.sha256(), 0, 0
        written: list[tuple[str, int]] = []
        for block in _blocks(body):
            mark = block.get("cache_control")
            rest = {n: v for n, v in block.items() if n != "cache_control"}
            data = json.dumps(rest, sort_keys=True).encode()
            digest.update(data)
            size += len(data)
            key = digest.hexdigest()
            if self._until.get(key, -1) >= self.now:
                read = size
            if mark:
                written.append((key, _SECONDS[mark.get("ttl", "5m")]))
        for key, seconds in written:
            until = self.now + seconds
            self._until[key] = max(self._until.get(key, 0), until)
        self.read, self.total = self.read + read, self.total + size
        return read, size

    def reply(self, received: Received) -> Reply:
        read, size = self.count(received.body)
        status, kind, data = canned_reply("messages", received)
        whole = json.loads(data)
        whole["usage"]["cache_read_input_tokens"] = read
        whole["usage"]["input_tokens"] = size - read
        return status, kind, json.dumps(whole).encode()


def _blocks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In the order in which they are cached: tools, system, messages."""
    yield from body.get("tools", ())
    yield from body.get("system", ())
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        yield from ({"role": message["role"], **block} for block in content)


def session() -> Iterator[dict[str, Any]]:
    """The bodies of a session: marks at the tools and the system for an hour, and a
    mark that moves with the last message."""
    hour = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    tools = [
        {"name": f"tool_{n}", "description": "x" * 300, "input_schema": {"a": n}}
        for n in range(12)
    ]
    tools[-1] |= hour
    system = [{"type": "text", "text": "y" * 4000, **hour}]
    messages: list[dict[str, Any]] = []
    for turn in range(TURNS):
        messages.append({"role": "user", "content": f"Step {turn}. " + "z" * 200})
        marked = {"type": "text", "text": messages[-1]["content"]}
        marked["cache_control"] = {"type": "ephemeral"}
        last = {"role": "user", "content": [marked]}
        yield {
            "max_tokens": 100,
            "tools": tools,
            "system": system,
            "messages": [*messages[:-1], last],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
        }
        use = {"type": "tool_use", "id": f"toolu_{turn}", "name": "tool_1", "input": {}}
        thought = {"type": "thinking", "thinking": "Hm.", "signature": f"s{turn}"}
        messages.append({"role": "assistant", "content": [thought, use]})
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": "w" * 500}
        messages.append({"role": "user", "content": [result]})
        messages.append({"role": "assistant", "content": f"Done {turn}."})


async def test_a_session_reads_as_much_from_the_cache_as_directly(client: Client):
    direct, behind = CachingHost(), CachingHost()
    reported = 0
    with Host(behind.reply) as host:
        model = await add_model("anthropic", CODECS["messages"], host.url, "new-model")
        for turn, body in enumerate(session()):
            seconds = 60 * _MINUTES[turn % len(_MINUTES)]
            direct.now, behind.now = direct.now + seconds, behind.now + seconds
            direct.count(body)
            answer = await client.post(PATHS["messages"], {**body, "model": model})
            assert answer.status == 200, answer.body
            reported += answer.json()["usage"]["cache_read_input_tokens"]
    assert 0.5 < direct.read / direct.total < 1
    assert behind.read / behind.total == pytest.approx(
        direct.read / direct.total, abs=0.01
    )
    assert reported == behind.read


# OpenAI caches on its own


@dataclass
class AutomaticHost:
    """Caches as OpenAI does: the longest prefix of at least 1,024 tokens in steps of
    128, at the machine that `prompt_cache_key` leads to. A token is four bytes."""

    api: str
    now: float = 0.0  # seconds
    read: int = 0
    total: int = 0
    _until: dict[tuple[str, str], float] = field(default_factory=dict)

    def count(self, body: dict[str, Any]) -> tuple[int, int]:
        """Tokens read, and all tokens of the request."""
        parts = [body.get("tools"), body.get("instructions")]
        parts += body.get("messages", body.get("input"))
        text = b"".join(json.dumps(part).encode() for part in parts if part)
        machine, read = body.get("prompt_cache_key", ""), 0
        digest, size = hashlib.sha256(), len(text) // 4
        for end in range(128, size + 1, 128):
            digest.update(text[4 * (end - 128) : 4 * end])
            key = (machine, digest.hexdigest())
            if end >= 1024 and self._until.get(key, -1) >= self.now:
                read = end
            self._until[key] = self.now + 600
        self.read, self.total = self.read + read, self.total + size
        return read, size

    def reply(self, received: Received) -> Reply:
        read, size = self.count(received.body)
        status, kind, data = canned_reply(self.api, received)
        if received.body.get("stream"):
            return status, kind, data
        whole = json.loads(data)
        name = "input_tokens" if self.api == "responses" else "prompt_tokens"
        whole["usage"][name] = size
        whole["usage"][f"{name}_details"] = {"cached_tokens": read}
        return status, kind, json.dumps(whole).encode()


def openai_session(api: str) -> Iterator[dict[str, Any]]:
    """The bodies of a session of a coding agent, which sends all that was said."""
    schema = {"type": "object", "required": ["b"], "properties": {"b": {}, "a": {}}}
    function = {"name": "look", "description": "x" * 900, "parameters": schema}
    is_chat = api == "chat"
    tool = {"type": "function", "function": function}
    tools = [tool if is_chat else {"type": "function", **function, "strict": False}]
    said: list[dict[str, Any]] = [{"role": "developer", "content": "y" * 6000}]
    history = "messages" if is_chat else "input"
    for turn in range(TURNS):
        said.append({"role": "user", "content": f"Step {turn}. é" + "z" * 200})
        body = {"tools": tools, history: [*said], "prompt_cache_key": "session"}
        yield body if is_chat else {**body, "store": False}
        id, arguments = f"call_{turn}", '{"b": 1, "a":2}'
        if is_chat:
            called = {"name": "look", "arguments": arguments}
            call = {"id": id, "type": "function", "function": called}
            said.append({"role": "assistant", "content": None, "tool_calls": [call]})
            said.append({"role": "tool", "tool_call_id": id, "content": "w" * 500})
        else:
            thought = {"type": "reasoning", "id": f"rs_{turn}", "summary": []}
            said.append({**thought, "encrypted_content": f"gAAA{turn}"})
            call = {"type": "function_call", "id": f"fc_{turn}", "call_id": id}
            said.append({**call, "name": "look", "arguments": arguments})
            output = {"type": "function_call_output", "call_id": id}
            said.append({**output, "output": "w" * 500})


@pytest.mark.parametrize("own_tools", [False, True], ids=["forwarded", "own tools"])
@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_a_session_reads_as_much_from_openais_cache_as_directly(
    api: str, own_tools: bool, client: Client
):
    await sync_to_async(Tool.objects.sync)()
    direct, behind = AutomaticHost(api), AutomaticHost(api)
    own = [{"type": "parley:tools", "names": ["calculator"]}] if own_tools else []
    with Host(behind.reply) as host:
        model = await add_model("openai", CODECS[api], host.url, "new-model")
        for turn, body in enumerate(openai_session(api)):
            seconds = 60 * _MINUTES[turn % len(_MINUTES)]
            direct.now, behind.now = direct.now + seconds, behind.now + seconds
            direct.count(body)
            sent = {**body, "model": model, "tools": [*body["tools"], *own]}
            answer = await client.post(PATHS[api], sent)
            assert answer.status == 200, answer.body
    assert 0.5 < direct.read / direct.total < 1
    assert behind.read / behind.total == pytest.approx(
        direct.read / direct.total, abs=0.01
    )


async def test_a_stored_session_reads_as_much_from_openais_cache(
    client: Client, running: None
):
    """The whole conversation is sent anew at each turn, as a client would send it."""
    behind, direct = AutomaticHost("responses"), AutomaticHost("responses")
    said: list[dict[str, Any]] = []
    with Host(behind.reply) as host:
        model = await add_model("openai", CODECS["responses"], host.url, "new-model")
        last = None
        for turn in range(TURNS):
            entry = {"role": "user", "content": f"Step {turn}. " + "z" * 900}
            said.append(entry)
            direct.count({"input": said, "prompt_cache_key": "session"})
            body = {"model": model, "input": [entry], "prompt_cache_key": "session"}
            body |= {"previous_response_id": last} if last else {}
            answer = await client.post(PATHS["responses"], body)
            assert answer.status == 200, answer.body
            last = answer.json()["id"]
            said.append({"role": "assistant", "content": "Hi"})
    assert 0.5 < direct.read / direct.total < 1
    assert behind.read / behind.total >= direct.read / direct.total - 0.01
