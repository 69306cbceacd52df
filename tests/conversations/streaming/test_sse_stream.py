"""An SSE stream to one client: a disconnect ends it, comments fill its silence."""

from __future__ import annotations

import asyncio
import re
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest
from django.http import HttpResponse

from conversations import engine
from conversations.engine.event_log import TurnLog
from conversations.http import sse
from conversations.http.sse import StreamForm, StreamMiddleware, TurnStreamResponse

BEAT = b": heartbeat\n\n"
_RETRY = re.compile(rb"\Aretry: (\d+)\n")


class Caller:
    """A client of a stream."""

    def __init__(self) -> None:
        self.disconnected = asyncio.Event()
        self.messages: list[Any] = []
        self.scope: dict[str, Any] = {"type": "http"}

    async def receive(self) -> Any:
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.messages.append(message)

    @property
    def body(self) -> bytes:
        """Without the time after which to reconnect."""
        return _RETRY.sub(b"", self.whole)

    @property
    def whole(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


async def admitted(
    scope: Any, receive: Any, send: Any, form: StreamForm = "events"
) -> None:
    answer: HttpResponse = TurnStreamResponse("resp_1", form=form)
    headers = [(k.lower().encode(), v.encode()) for k, v in answer.items()]
    start = {"type": "http.response.start", "status": 202, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> TurnLog:
    """A log to subscribe to: all its entries, until it ends."""
    log = TurnLog("resp_1")

    async def follow(turn_id: str, after: Any) -> Any:
        count = 0
        while not log.ended or count < len(log.entries):
            if batch := log.entries[count:]:
                count += len(batch)
                yield batch
            else:
                await log.wait_for_change()

    monkeypatch.setattr(engine, "subscribe", follow)
    return log


def event_of(number: int, type: str = "response.output_text.delta") -> Any:
    return {"type": type, "sequence_number": number}


def served(caller: Caller, form: StreamForm = "events") -> asyncio.Task[None]:
    streams = StreamMiddleware(partial(admitted, form=form))
    return asyncio.ensure_future(streams(caller.scope, caller.receive, caller.send))


async def until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


async def test_the_stream_ends_with_the_turn(log):
    before = asyncio.all_tasks()
    caller = Caller()
    serving = served(caller)
    log.append(1, [event_of(0), event_of(1, "response.completed")])
    await serving
    assert caller.body == BEAT + b"".join(e.frame for e in log.entries)
    assert caller.messages[-1].get("more_body", False) is False
    assert asyncio.all_tasks() == before


async def test_clients_reconnect_each_at_another_time(log, monkeypatch):
    async def times() -> list[int]:
        callers = [Caller() for _ in range(40)]
        await asyncio.gather(*(served(caller) for caller in callers))
        found = [_RETRY.match(caller.whole) for caller in callers]
        return [int(match[1]) for match in found if match]

    log.append(1, [event_of(0, "response.completed")])
    running = await times()

    def refuse(turn_id: str, after: Any) -> Any:
        raise engine.NotRunning

    monkeypatch.setattr(engine, "subscribe", refuse)
    for milliseconds in (running, await times()):
        assert len(milliseconds) == 40
        assert 1000 <= min(milliseconds) < max(milliseconds) <= 5000


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
async def test_each_line_of_a_text_is_a_line_of_data(log, end):
    caller = Caller()
    text = end.join(["one", "", "two"])
    log.append(
        1,
        [
            {**event_of(0), "delta": text},
            {**event_of(1, "error"), "error": {"message": text}},
            event_of(2, "response.completed"),
        ],
    )
    await served(caller, form="text")
    lines = b"data: one\ndata: \ndata: two\n\n"
    assert caller.body.count(lines) == 2
    assert b"\r" not in caller.body


async def test_a_disconnect_ends_the_stream_at_once(log):
    before = asyncio.all_tasks()
    caller = Caller()
    serving = served(caller)
    await until(lambda: caller.body == BEAT)
    caller.disconnected.set()
    await serving  # well, as the server wishes
    assert asyncio.all_tasks() == before
    log.append(1, [event_of(0)])
    assert caller.body == BEAT


async def test_context_variables_of_django_do_not_leak_into_the_stream(log):
    left: ContextVar[str] = ContextVar("left", default="nothing")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        left.set("much")
        await asyncio.sleep(0)
        assert left.get() == "much"
        with pytest.raises(ZeroDivisionError):
            await _fault()
        await admitted(scope, receive, send)

    async def _fault() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async def serve() -> str:
        await StreamMiddleware(app)(caller.scope, caller.receive, caller.send)
        return left.get()

    caller = Caller()
    log.append(1, [event_of(0), event_of(1, "response.completed")])
    assert await serve() == "nothing"
    assert caller.body == BEAT + b"".join(e.frame for e in log.entries)


async def test_a_cancellation_happens_inside_django():
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await receive()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    caller = Caller()
    task = asyncio.ensure_future(
        StreamMiddleware(app)(caller.scope, caller.receive, caller.send)
    )
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_a_server_that_ends_it_is_obeyed(log):
    caller = Caller()
    serving = served(caller)
    await until(lambda: caller.body == BEAT)
    caller.disconnected.set()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_silence_is_reported_by_comments(log, monkeypatch):
    monkeypatch.setattr(sse, "HEARTBEAT", 0.0)
    caller = Caller()
    serving = served(caller)

    def beats() -> int:
        return caller.body.count(BEAT)

    await until(lambda: beats() > 3)
    caller.disconnected.set()
    await serving
    after = beats()
    for _ in range(5):
        await asyncio.sleep(0)
    assert beats() == after
