"""Replays and evaluations on which the only process worked when it was killed."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from conversations import engine
from conversations.models import Preset, Replay
from conversations.models.staff.evaluation import EvaluationRun, EvaluationSet


def a_replay(**fields: Any) -> Replay:
    return Replay.objects.create(name="try", **fields)


def an_evaluation(**fields: Any) -> EvaluationRun:
    preset = Preset.objects.create(name="legal")
    cases = EvaluationSet.objects.create(preset=preset, name="basics")
    return EvaluationRun.objects.create(evaluation_set=cases, content={}, **fields)


@pytest.mark.parametrize("make", [a_replay, an_evaluation])
async def test_it_goes_on_as_soon_as_the_process_has_started(transactional_db, make):
    until = timezone.now() + timedelta(minutes=5)
    batch = await sync_to_async(make)(state="running", lease_until=until)
    await engine.start()
    try:
        async with asyncio.timeout(30):
            while batch.state == "running":
                await asyncio.sleep(0)
                await batch.arefresh_from_db()
    finally:
        await engine.drain()
    assert batch.state == "done"  # it has no rows
