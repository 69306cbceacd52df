"""Background calls of one run, which live in its process and end with it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from llm.wire.items import Item
from tools.conf import settings
from tools.execute import (
    CallOutcome,
    CallProgress,
    execute,
    find_tool_name,
    format_trace,
)
from tools.loop.late_results import LateResult, poll_for, result_message
from tools.runtime_tool import Accepted, Context, RuntimeTool

logger = logging.getLogger(__name__)

_NO_RESULT = (
    "its result would be posted to an address, which only conversations have; give the"
    " tool a way to poll for it."
)

#: Receives the call and the message of each progress report.
OnProgress = Callable[[Item, str], None]


class RunBackgroundCalls:
    """Runs calls in tasks of their own and collects their results. `close` it."""

    def __init__(
        self,
        tools: Mapping[str, RuntimeTool],
        context: Context,
        on_progress: OnProgress,
    ) -> None:
        self.seconds = 0.0  # of the calls that ended
        self._tools = tools
        self._context = context
        self._on_progress = on_progress
        self._running: dict[asyncio.Task[None], Item] = {}  # not cancelled
        self._tasks: set[asyncio.Task[None]] = set()  # not ended
        self._results: list[LateResult] = []
        self._news = asyncio.Event()  # a result has arrived, or progress

    @property
    def is_running(self) -> bool:
        return bool(self._running)

    @property
    def has_results(self) -> bool:
        return bool(self._results)

    def start(self, call: Item, accepted: Accepted | None = None) -> None:
        """Run the call; `accepted` if it ran already and its work goes on elsewhere."""
        task = asyncio.create_task(self._run(call, accepted))
        self._running[task] = call
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    def take_results(self) -> list[LateResult]:
        """The results since the last time, in the order of their arrival."""
        results, self._results = self._results, []
        return results

    async def wait_for_news(self) -> None:
        """Wait for a result or a progress report."""
        self._news.clear()
        if self.is_running and not self._results:
            await self._news.wait()

    def cancel(self) -> Sequence[Item]:
        """Cancel the calls that run, and return them."""
        calls = list(self._running.values())
        for task in self._running:
            task.cancel()
        self._running = {}
        return calls

    async def close(self) -> None:
        """Cancel the calls that run, and wait for all tasks, which end soon."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        call = self._running.pop(task, None)
        if not task.cancelled() and (exc := task.exception()):
            self._report_failure(call, exc)
        self._news.set()

    def _report_failure(self, call: Item | None, exc: BaseException) -> None:
        """Log the error, and give it to the model if the call was not cancelled."""
        # Without the message, which may quote the user's arguments.
        logger.error("a background call failed: %s", format_trace(exc))
        if call is None:
            return
        name = find_tool_name(call["name"], self._tools)
        error = f"{name} failed: {type(exc).__name__}."
        self._results.append(
            LateResult(
                item=result_message(call["call_id"], name, f"Error: {error}"),
                call_id=call["call_id"],
                name=name,
                state="failed",
                error=error,
            )
        )

    async def _run(self, call: Item, accepted: Accepted | None) -> None:
        name = find_tool_name(call["name"], self._tools)
        tool = self._tools[name]
        started = time.monotonic()
        limit = settings.BACKGROUND_TOOL_TIMEOUT
        limit = limit if tool.timeout is None else tool.timeout
        tool = replace(tool, timeout=limit)
        if accepted is None:
            outcome = await self._execute(call, tool)
            until = time.monotonic() - outcome.seconds + limit
        else:
            until = started + limit
            outcome = await self._poll(call, tool, accepted, limit)
        while outcome.accepted:
            left = until - time.monotonic()
            outcome = await self._poll(call, tool, outcome.accepted, left)
        seconds = time.monotonic() - started
        self.seconds += seconds
        self._results.append(
            LateResult(
                item=result_message(call["call_id"], name, outcome.output),
                call_id=call["call_id"],
                name=name,
                state=outcome.state,
                error=outcome.error,
                seconds=seconds,
            )
        )

    async def _poll(
        self, call: Item, tool: RuntimeTool, accepted: Accepted, left: float
    ) -> CallOutcome:
        if accepted.poll_after is None or tool.poll is None:
            return CallOutcome(
                call["call_id"], "failed", f"Error: {_NO_RESULT}", _NO_RESULT, 0.0
            )
        await asyncio.sleep(max(0.0, min(accepted.poll_after, left)))
        polling = poll_for(tool, accepted.token)
        timeout = max(left - accepted.poll_after, 0.001)
        tool = replace(tool, timeout=timeout, call=polling, permit=None)
        return await self._execute(call, tool)

    async def _execute(self, call: Item, tool: RuntimeTool) -> CallOutcome:
        updates = execute([call], {tool.name: tool}, self._context)
        async with aclosing(updates):
            async for update in updates:
                if isinstance(update, CallProgress):
                    self._on_progress(call, update.message)
                    self._news.set()
                elif isinstance(update, CallOutcome):
                    return update
        raise AssertionError("a call has one outcome")
