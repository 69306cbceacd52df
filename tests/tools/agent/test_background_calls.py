"""Calls of a run that the model does not wait for."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from llm.models import ModelCall
from tests.tools.agent.upstream import calls, model_saying, outputs, says
from tests.tools.servers import ok, serving
from tools import api
from tools.agent import background


async def test_a_project_need_not_set_the_timeouts(settings: Any):
    del settings.TOOL_TIMEOUT
    del settings.BACKGROUND_TOOL_TIMEOUT

    async def slow() -> str:
        """Take long."""
        return "The late result."

    replies = calls(("slow", {}), ("orders", {})), says("Wait."), says("Done.")
    async with model_saying(*replies) as model, serving(ok(b"sent")) as shop:
        orders = api.HttpTool(
            name="orders",
            description="Orders.",
            url=shop.url("/orders"),
            networks=["127.0.0.0/8"],
        )
        result = await api.run(
            model.route, "?", tools=[slow, orders], non_blocking=["slow"], record=False
        )
    assert "sent" in outputs(model.requests[1])
    assert "The late result." in json.dumps(model.requests[-1]["messages"])
    assert result.metadata["response_status"] == "completed"


async def test_an_unforeseen_error_becomes_a_failed_result(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    async def poll(context: api.ToolContext, token: str) -> str:
        return "unreached"

    def poll_for(tool: object, token: str) -> None:
        raise TypeError(token)

    monkeypatch.setattr(background, "poll_for", poll_for)

    @api.tool(blocking=False, poll=poll)
    async def odd() -> Any:
        """Leave the work to others."""
        return api.Accepted("secret-job", poll_after=0)

    events: list[Any] = []
    replies = calls(("odd", {})), says("Wait."), says("It failed.")
    async with model_saying(*replies) as model:
        result = await api.run(
            model.route, "?", tools=[odd], record=False, on_event=events.append
        )
    (failed,) = (e for e in events if e["type"] == "parley:background_call.failed")
    assert (failed["state"], failed["error"]) == ("failed", "odd failed: TypeError.")
    assert result.text == "It failed."
    (line,) = (r.getMessage() for r in caplog.records if r.levelname == "ERROR")
    assert "TypeError" in line
    assert "secret-job" not in line


async def test_a_run_ends_after_the_calls_that_it_cancelled():
    has_begun = asyncio.Event()
    ended: list[str] = []

    @api.tool(blocking=False)
    async def slow() -> str:
        """Take long, and clean up."""
        try:
            has_begun.set()
            await asyncio.Event().wait()
        finally:
            for _ in range(100):
                await asyncio.sleep(0)
            ended.append("slow")
        return ""

    @api.tool
    async def wait() -> str:
        """Wait for the other."""
        await has_begun.wait()
        return ""

    async with model_saying(calls(("slow", {}), ("wait", {}))) as model:
        await api.run(
            model.route, "?", tools=[slow, wait], max_iterations=1, record=False
        )
    assert ended == ["slow"]


@pytest.mark.django_db(transaction=True)
async def test_progress_during_a_write_of_the_database_is_not_missed():
    loop = asyncio.get_running_loop()
    may_report, is_seen = asyncio.Event(), asyncio.Event()
    has_reported = threading.Event()
    rows: list[Any] = []

    @api.tool(blocking=False)
    async def slow(context: api.ToolContext) -> str:
        """Report, and go on once that was seen."""
        await may_report.wait()
        context.progress("half of it")
        for _ in range(20):  # until the run has the report
            await asyncio.sleep(0)
        has_reported.set()
        await is_seen.wait()
        return "The whole."

    def on_event(event: Any) -> None:
        if event["type"] == "parley:tool_call.progress":
            is_seen.set()

    def report_now(execute: Any, sql: str, *rest: Any) -> Any:
        rows.extend(["row"] if ModelCall._meta.db_table in sql else [])
        if len(rows) == 2 and not has_reported.is_set():  # only `slow` is left
            loop.call_soon_threadsafe(may_report.set)
            assert has_reported.wait(10)
        return execute(sql, *rest)

    replies = calls(("slow", {})), says("Wait."), says("Done.")
    async with model_saying(*replies) as model:
        options: Any = {"tools": [slow], "on_event": on_event, "deadline": 10}
        with ExitStack() as stack:
            await sync_to_async(
                lambda: stack.enter_context(connection.execute_wrapper(report_now))
            )()
            result = await api.run(model.route, "?", **options)
    assert result.metadata["response_status"] == "completed"
