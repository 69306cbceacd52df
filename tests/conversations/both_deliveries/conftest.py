"""Fixtures of turns: a conversation, a scripted provider, a tool, an engine."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from conversations import engine
from conversations.models import Conversation
from llm.http import client
from llm.models import ApiKey, LanguageModel, Provider
from tests.conversations.script import Script
from tools.models import PermittedTools
from tools.registry import RuntimeTool


@pytest.fixture
def conversation(transactional_db):
    user = User.objects.create_user("alice")
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    model = LanguageModel.objects.create(provider=provider, name="demo")
    return Conversation.objects.create(owner=user, language_model=model)


@pytest.fixture
def say(monkeypatch):
    """Script the provider's calls."""

    def say(*calls, **options):
        script = Script(*calls, **options)
        monkeypatch.setattr(client, "stream", script)
        return script

    return say


@pytest.fixture
def counter(monkeypatch):
    """A tool that counts how often it has run."""
    runs: list[str] = []

    def offer(replay):
        async def count(context, arguments):
            runs.append(context.idempotency_key)
            return f"{len(runs)}"

        tool = RuntimeTool(
            name="count",
            description="",
            parameters={"type": "object"},
            call=count,
            replay=replay,
        )
        monkeypatch.setattr(
            "conversations.engine.loading.available_tools.permitted_tools",
            lambda turn: PermittedTools({"count": tool}),
        )
        return runs

    return offer


@pytest.fixture
async def running(transactional_db, settings):
    settings.DRAIN_GRACE = 0.1
    await engine.start()
    yield
    await engine.drain()
