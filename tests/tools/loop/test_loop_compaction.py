"""The tool loop with a compactor, while other things happen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from llm.wire.items import new_id, text_of, user_message
from llm.wire.response_builder import TERMINAL
from tests.conversations.script import Script
from tests.tools.loop.test_loop import ANSWER, start
from tools.loop.late_results import LateResult


@dataclass
class Plan:
    messages: int = 3


class Compactor:
    """Looks once, for a while. `found` is its plan."""

    room = 1000

    def __init__(self, found=None, when_planned=lambda: None):
        self.found = found
        self.when_planned = when_planned

    def is_due(self, request):
        return True

    async def plan(self, request):
        await asyncio.sleep(0)
        self.when_planned()
        return self.found

    async def summarise(self, plan, record):
        await asyncio.sleep(0)
        summary = [{"type": "summary_text", "text": "Tea."}]
        return {"type": "compaction", "id": new_id("cmp"), "summary": summary}

    async def reload(self):
        await asyncio.sleep(0)


async def test_a_result_that_arrives_during_a_plan_is_in_the_request():
    script = Script(ANSWER)

    def arrive():
        rows.results = [
            LateResult(
                item=user_message("It rains."),
                call_id="c1",
                name="weather",
                state="completed",
            )
        ]
        rows.has_new_results = True

    batches, _, rows = start(script, compactor=Compactor(when_planned=arrive))
    async for _ in batches:
        pass
    [request] = script.requests
    assert [text_of(item) for item in request.items] == ["It rains."]
    assert rows.log[0] == ("answered", [], True)


@pytest.mark.parametrize("moment", range(1, 12))
async def test_a_compaction_stopped_at_any_moment_leaves_no_gap(moment):
    batches, builder, _ = start(Script(ANSWER, pause=True), compactor=Compactor(Plan()))
    events = []

    async def follow():
        async for batch in batches:
            events.extend(batch)

    task = asyncio.ensure_future(follow())
    for _ in range(moment):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert events[-1]["type"] in TERMINAL
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(2, 2 + len(numbers)))
    done = [e["item"]["id"] for e in events if e["type"] == "response.output_item.done"]
    assert done == [item["id"] for item in builder.output]
