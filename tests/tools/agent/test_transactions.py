"""Synchronous runs inside a transaction of their caller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from llm.models import ModelCall
from llm.provider import Route
from tests.tools.agent.upstream import calls, model_saying, says
from tools import api


def who(question: api.Question) -> str:
    return f"There are {User.objects.count()} users."


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("streams", [False, True])
async def test_a_synchronous_run_is_part_of_its_callers_transaction(streams: bool):
    def ask(route: Route) -> list[int]:
        options: Any = {"tools": [add], "contexts": [who]}
        with transaction.atomic():
            User.objects.create(username="ada")
            if streams:
                with api.stream_sync(route, "1+2?", **options) as stream:
                    list(stream)
                result = stream.result
            else:
                result = api.run_sync(route, "1+2?", **options)
            assert result.text == "Three."
            within = ModelCall.objects.count()
            transaction.set_rollback(True)
        return [within, ModelCall.objects.count()]

    replies = calls(("add", {"a": 1, "b": 2})), says("Three.")
    async with model_saying(*replies) as model:
        assert await asyncio.to_thread(ask, model.route) == [2, 0]
        assert "There are 1 users." in str(model.requests[0])


@pytest.mark.django_db(transaction=True)
async def test_a_stream_closed_early_records_its_call_in_the_callers_transaction():
    def ask(route: Route) -> list[str]:
        with transaction.atomic():
            User.objects.create(username="ada")
            with api.stream_sync(route, "?") as stream:
                for event in stream:
                    if event["type"] == "response.output_text.delta":
                        break
        return list(ModelCall.objects.values_list("status", flat=True))

    async with model_saying(says("One.")) as model:
        assert await asyncio.to_thread(ask, model.route) == ["cancelled"]
