"""A receiver, endpoints that name it, and the job that delivers, without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from conversations import engine
from conversations.engine.database.executor import Database
from conversations.engine.process.engine_tasks import EngineTasks
from conversations.engine.webhooks.delivering import Deliveries
from conversations.models import Conversation, Delivery, EventType, WebhookEndpoint
from llm.http import client
from llm.models import ApiKey, LanguageModel, Provider
from tests.conversations.script import Script

from .receiver import Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def conversation(transactional_db: None) -> Conversation:
    provider = Provider.objects.create(name="Demo", kind="demo")
    ApiKey.objects.create(provider=provider, secret="demo-key-of-these-tests")
    model = LanguageModel.objects.create(provider=provider, name="demo")
    owner = User.objects.create_user("alice", email="alice@example.org")
    return Conversation.objects.create(owner=owner, language_model=model)


@pytest.fixture
def make_endpoint(receiver: Receiver) -> Callable[..., tuple[WebhookEndpoint, str]]:
    """An endpoint at the receiver, and its secret."""

    def make_endpoint(**fields: Any) -> tuple[WebhookEndpoint, str]:
        usual = {
            "name": "Receiver",
            "url": receiver.url,
            "networks": "127.0.0.1",
            "events": EventType.values,
        }
        row = WebhookEndpoint(**{**usual, **fields})
        return row, row.renew_secret()

    return make_endpoint


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Script]:
    """Script the provider's calls."""

    def say(*calls: Any, **options: Any) -> Script:
        script = Script(*calls, **options)
        monkeypatch.setattr(client, "stream", script)
        return script

    return say


@pytest.fixture
async def running(transactional_db, settings):
    settings.DRAIN_GRACE = 0.1
    await engine.start()
    yield
    await engine.drain()


class Job:
    """The job of one process."""

    def __init__(self) -> None:
        self.tasks, self.database = EngineTasks(), Database()
        self.deliveries = Deliveries(self.tasks, self.database)

    async def run(self) -> None:
        """Until nothing is due."""
        await self.deliveries.run_due()
        while tasks := self.tasks.with_names("delivery"):
            await asyncio.gather(*tasks)

    async def close(self) -> None:
        self.tasks.stop()
        await self.tasks.cancel("delivery")
        await self.database.close()


@pytest.fixture
async def job(transactional_db):
    job = Job()
    yield job
    await job.close()


def make_due() -> None:
    """Let the time until the next attempts pass."""
    earlier = timezone.now() - timedelta(seconds=1)
    Delivery.objects.filter(state="pending").update(next_attempt_at=earlier)
