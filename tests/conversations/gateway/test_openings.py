"""Stored responses wait to be opened: users take turns, and the wait is measured."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from conversations import engine
from conversations.access.overload import find_excess, load
from conversations.gateway import stored, stored_rows
from conversations.gateway.loop_resources import MAX_OPENINGS, Resources


@pytest.fixture
async def resources() -> AsyncIterator[Resources]:
    resources = Resources()
    yield resources
    await resources.close()


async def test_users_take_turns_and_the_wait_counts_as_load(
    resources: Resources, monkeypatch: pytest.MonkeyPatch, settings: Any
):
    opened: list[int] = []
    may_open = threading.Event()

    def open_turn(request: Any) -> Any:
        assert may_open.wait(60)
        opened.append(request.token.user_id)
        return _opened("turn")

    monkeypatch.setattr(stored_rows, "open_turn", open_turn)
    monkeypatch.setattr(stored_rows, "response_of", lambda turn: turn)
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)
    ada, bob = 1, 2
    first = [ada] * MAX_OPENINGS
    requests: list[Any] = [
        SimpleNamespace(token=SimpleNamespace(user_id=user), body={})
        for user in [*first, ada, ada, ada, bob]
    ]
    settings.MAX_START_WAIT = 1e-9
    assert find_excess(load) != "MAX_START_WAIT"
    openings = [
        asyncio.ensure_future(stored.open_turn(request, resources))
        for request in requests
    ]
    while resources.openings.waiting < 4:
        await asyncio.sleep(0)
    assert find_excess(load) == "MAX_START_WAIT"
    may_open.set()
    await asyncio.gather(*openings)
    assert opened == [*first, ada, bob, ada, ada]
    assert find_excess(load) != "MAX_START_WAIT"


@pytest.mark.parametrize("is_background", [False, True])
async def test_clients_that_disconnect_leave_the_queue_unless_in_the_background(
    is_background: bool, resources: Resources, monkeypatch: pytest.MonkeyPatch
):
    opened: list[str] = []
    may_open = threading.Event()

    def open_turn(request: Any) -> Any:
        assert may_open.wait(60)
        opened.append(request.name)
        return _opened(request.name)

    monkeypatch.setattr(stored_rows, "open_turn", open_turn)
    monkeypatch.setattr(stored_rows, "response_of", lambda turn: turn)
    monkeypatch.setattr(stored_rows, "stop_soon", lambda *args: None)
    monkeypatch.setattr(engine, "submit", lambda *_, **__: None)
    body = {"background": is_background}
    names = ["first", *["waiting"] * MAX_OPENINGS]
    requests: list[Any] = [
        SimpleNamespace(token=SimpleNamespace(user_id=1), body=body, name=name)
        for name in names
    ]
    openings = [
        asyncio.ensure_future(stored.open_turn(request, resources))
        for request in requests
    ]
    while not resources.openings.waiting:
        await asyncio.sleep(0)
    openings[-1].cancel()  # waits in the queue
    await asyncio.gather(openings[-1], return_exceptions=True)
    assert resources.openings.waiting == is_background
    may_open.set()
    await asyncio.gather(*openings[:-1])
    while resources.openings.waiting:
        await asyncio.sleep(0)
    await resources.openings.acquire()  # none was lost
    await resources.openings.acquire()
    assert len(opened) == len(names) - (not is_background)


def _opened(turn_id: str) -> Any:
    turn = SimpleNamespace(pk=turn_id, conversation_id="chat")
    return SimpleNamespace(turn=turn, items=())
