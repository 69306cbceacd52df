"""Results and progress of any size delay no other user."""

from __future__ import annotations

import itertools
import threading
from typing import Any

from tools.execute import MAX_PROGRESS, CallProgress
from tools.execution.output import RenderedOutput, render_output
from tools.registry import Context, tool

from .calls import call, happenings, outcome


async def test_an_endless_result_is_a_failure():
    @tool
    async def count() -> Any:
        return itertools.count()

    seen = await outcome(count)
    assert (seen.state, seen.error) == (
        "failed",
        "its result has an iterator, of type count: a tool returns a list instead.",
    )


async def test_a_large_result_is_written_in_a_thread(monkeypatch):
    threads = []

    def render(value: Any) -> RenderedOutput:
        threads.append(threading.current_thread())
        return render_output(value)

    monkeypatch.setattr("tools.execute.render_output", render)

    @tool
    async def repeat(text: str, times: int) -> Any:
        return [text] * times

    await outcome(repeat, text="a", times=3)
    await outcome(repeat, text="a", times=100_000)
    assert threads[0] is threading.current_thread()
    assert threads[1] is not threading.current_thread()


async def test_long_progress_is_cut_before_it_is_read(monkeypatch):
    sizes = []

    def sanitize(text: str) -> str:
        sizes.append(len(text))
        return text

    monkeypatch.setattr("tools.execute.sanitize_text", sanitize)

    @tool
    async def report(context: Context) -> str:
        context.progress("x" * 10_000_000)
        return "done"

    first, _ = await happenings([call("report")], report)
    assert first == CallProgress("c1", "x" * MAX_PROGRESS)
    assert max(sizes) == MAX_PROGRESS
