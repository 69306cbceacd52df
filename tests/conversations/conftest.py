"""A conversation with the demo model, what that says, and the engine that asks it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from conversations import engine
from conversations.models import Conversation
from llm.http import client
from llm.models import ApiKey, LanguageModel, Provider

from .scene import a_user
from .script import Script


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
async def running(settings) -> AsyncIterator[None]:
    settings.DRAIN_GRACE = 0.1
    await engine.start()
    yield
    await engine.drain()
