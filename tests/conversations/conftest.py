"""A conversation with the demo model, its script, and the engine that runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from conversations import engine
from conversations.models import Conversation
from llm import providers
from llm.http import client
from llm.models import ApiKey, LanguageModel, Provider
from llm.provider import Provider as Host
from tools.models import PermittedTools
from tools.models import Tool as ToolRow
from tools.registry import Context, RuntimeTool

from .scene import a_user
from .script import Script

Call = Callable[[Context, dict[str, Any]], Any]


@pytest.fixture
def conversation(db: None) -> Conversation:
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    model = LanguageModel.objects.create(
        provider=provider, name="demo", is_default=True
    )
    return Conversation.objects.create(owner=a_user("ada"), language_model=model)


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Script]:
    def say(*calls) -> Script:
        script = Script(*calls)
        monkeypatch.setattr(client, "stream", script)
        return script

    return say


@pytest.fixture
def scripted_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of provider that needs no key and is never called."""
    host = Host(
        name="scripted",
        label="Scripted",
        base_url="https://models.test/v1",
        codecs={"none": SimpleNamespace(name="none")},
        needs_key=False,
    )
    monkeypatch.setattr(providers, "all_providers", lambda: {"scripted": host})


@pytest.fixture
async def running(settings) -> AsyncIterator[None]:
    settings.DRAIN_GRACE = 0.1
    await engine.start()
    yield
    await engine.drain()


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give the model one tool, `dig`, which the model does not wait for."""

    def offer(call: Call, **fields: Any) -> None:
        tool = RuntimeTool(
            name="dig",
            description="",
            parameters={"type": "object"},
            call=call,
            **{"blocking": False, **fields},
        )
        found = PermittedTools({"dig": tool})
        monkeypatch.setattr(
            "conversations.engine.loading.available_tools.permitted_tools",
            lambda turn: found,
        )
        monkeypatch.setattr(
            type(ToolRow.objects), "available", lambda self, user: {"dig": tool}
        )

    return offer
