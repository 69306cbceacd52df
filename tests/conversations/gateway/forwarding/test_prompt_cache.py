"""A coding agent's prompt cache works through the gateway as by a direct connection.

The host caches as Anthropic does: at each `cache_control` it stores the prefix up to
there for its time to live, and reads the longest stored prefix.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

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


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = await Client().open()
    yield client
    await client.close()


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
