from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from tools.errors import NoFreeThread
from tools.python.thread_pool import MAX_THREADS, ToolThreadPool
from tools.registry import Context, tool_of

who = contextvars.ContextVar("who", default="nobody")


@pytest.fixture
def gate():
    """Tasks that wait for it continue when the test is over."""
    gate = threading.Event()
    yield gate
    gate.set()


@contextmanager
def noting(pauses):
    pauses.append("on")
    yield
    pauses.append("off")


async def abandon(threads, function):
    """Start it, see it start, give it up."""
    started = threading.Event()

    def begin():
        started.set()
        return function()

    task = asyncio.create_task(threads.run(begin))
    while not started.is_set():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_it_returns_and_raises_what_the_function_does():
    threads = ToolThreadPool(2)
    assert await threads.run(lambda: 3) == 3
    with pytest.raises(KeyError, match="gone"):
        await threads.run(partial({}.__getitem__, "gone"))


async def test_the_loop_is_not_blocked_and_context_variables_are_copied():
    who.set("me")
    name = await ToolThreadPool(1).run(lambda: (threading.get_ident(), who.get()))
    assert name != (threading.get_ident(), "me")
    assert name[1] == "me"


async def test_a_stop_iteration_does_not_wait_for_ever():
    with pytest.raises(RuntimeError, match="StopIteration"):
        await ToolThreadPool(1).run(partial(next, iter(())))


async def test_no_more_run_at_once_than_allowed():
    threads, lock, running, most = ToolThreadPool(3), threading.Lock(), [0], [0]

    def work():
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        with lock:
            running[0] -= 1

    await asyncio.gather(*(threads.run(work) for _ in range(200)))
    assert 1 <= most[0] <= 3


async def test_a_queued_call_that_is_cancelled_never_runs(gate):
    threads, ran = ToolThreadPool(1), []
    first = asyncio.create_task(threads.run(gate.wait))
    second = asyncio.create_task(threads.run(partial(ran.append, 2)))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.set()
    await first
    await threads.run(partial(ran.append, 3))
    assert ran == [3]


async def test_one_that_hangs_leaves_its_place_to_the_next(gate, caplog):
    threads = ToolThreadPool(1)
    await abandon(threads, gate.wait)
    assert await threads.run(lambda: 3) == 3
    assert "its thread cannot be stopped" in caplog.text


async def test_a_waiting_call_replaces_a_hanging_one(gate):
    threads, started = ToolThreadPool(1), threading.Event()

    def hang():
        started.set()
        gate.wait()

    hanging = asyncio.create_task(threads.run(hang))
    while not started.is_set():
        await asyncio.sleep(0)
    waiting = asyncio.create_task(threads.run(lambda: 3))
    await asyncio.sleep(0)
    hanging.cancel()
    assert await waiting == 3


async def test_the_abandoned_are_limited_too_until_they_end(gate):
    threads = ToolThreadPool(1)
    await abandon(threads, gate.wait)
    await abandon(threads, gate.wait)
    waiting = asyncio.create_task(threads.run(lambda: 3))
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.set()
    assert await waiting == 3
    assert await asyncio.gather(*(threads.run(lambda: 4) for _ in range(9))) == [4] * 9


async def test_a_call_that_waits_for_a_thread_uses_none_of_its_time(gate):
    threads, pauses = ToolThreadPool(1), []
    first = asyncio.create_task(threads.run(gate.wait))
    await asyncio.sleep(0)
    second = asyncio.create_task(
        threads.run(lambda: 3, pause_timer=partial(noting, pauses))
    )
    await asyncio.sleep(0)
    assert (pauses, threads.waiting) == (["on"], 1)
    gate.set()
    assert await second == 3
    assert (pauses, threads.waiting) == (["on", "off"], 0)
    await first


async def test_the_time_of_a_tool_stands_still_while_it_waits_for_a_thread(gate):
    def hang() -> None:
        gate.wait()

    hanging, pauses = tool_of(hang).call, []
    running = [asyncio.create_task(hanging(Context(), {})) for _ in range(MAX_THREADS)]
    await asyncio.sleep(0)
    context = Context(pause_timer=partial(noting, pauses))
    waiting = asyncio.create_task(hanging(context, {}))
    while not pauses:
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(waiting, *running)
    assert pauses == ["on", "off"]


async def test_a_call_that_finds_no_thread_for_long_is_given_up_unbegun(gate, caplog):
    threads, ran = ToolThreadPool(1, longest_wait=0.0), []
    first = asyncio.create_task(threads.run(gate.wait))
    await asyncio.sleep(0)
    with pytest.raises(NoFreeThread, match="has not begun"):
        await threads.run(partial(ran.append, 2), "ping")
    assert "ping was given up" in caplog.text
    gate.set()
    await first
    async with asyncio.timeout(60):
        while not ran:  # its thread may come a moment after its result
            with suppress(NoFreeThread):
                await threads.run(partial(ran.append, 3))
    assert ran == [3]


async def test_the_abandoned_are_counted_while_they_hang(gate):
    threads = ToolThreadPool(2)
    assert threads.abandoned == 0
    await abandon(threads, gate.wait)
    assert threads.abandoned == 1
    gate.set()
    while threads.abandoned:
        await asyncio.sleep(0)


async def test_a_system_without_threads_left_is_an_error_and_no_loss(monkeypatch):
    threads = ToolThreadPool(1)

    def refuse(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            await threads.run(lambda: 3)
    assert await threads.run(lambda: 3) == 3


async def test_a_hanging_thread_does_not_stop_the_process_from_ending(gate):
    assert await ToolThreadPool(1).run(lambda: threading.current_thread().daemon)
