"""The number of statements that a turn costs PostgreSQL, without BEGIN and COMMIT: a
turn without the reads of the request that opens it, and a stored response with them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from operator import and_
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection
from django.db.backends.signals import connection_created

from conversations import engine
from conversations.gateway import loop_resources
from conversations.models import Turn
from llm.wire.deltas import FinishDelta, TextDelta
from llm.wire.items import user_message
from project.server.application import application
from tests.conversations.scene import bearer

pytestmark = pytest.mark.skipif(
    not settings.IS_SCALED, reason="SQLite runs in the process"
)
#: Lower it with each statement that is saved; never raise it.
BOUND = 10
BOUND_OF_STORED_RESPONSE = 7
TURNS = 4  # what all of them sent counts: at times the engine's periodic work falls in


class Statements:
    """What the watched connections execute."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, execute: Any, sql: str, *arguments: Any) -> Any:
        self.texts.append(sql)
        return execute(sql, *arguments)

    def watch(self, connection: Any, **signal: Any) -> None:
        """Each thread's, as it opens: below a wrapper that opens it and then removes
        the last one."""
        connection.execute_wrappers.insert(0, self.note)


@pytest.fixture
def statements() -> Iterator[Statements]:
    watching = Statements()
    connection_created.connect(watching.watch)
    yield watching
    connection_created.disconnect(watching.watch)


async def test_a_turn_takes_few_statements(statements, conversation, say, running):
    gate = asyncio.Event()
    say([gate, TextDelta(0, "Hello."), FinishDelta("stop")])
    # Connects all threads, and is the first turn of its conversation.
    await answer(conversation, statements, gate)
    executed: list[Counter[str]] = []
    for _ in range(TURNS):
        before = len(statements.texts)
        await answer(conversation, statements, gate)
        executed.append(Counter(statements.texts[before:]))
    common = reduce(and_, executed)
    assert any("pg_notify" in sql for sql in common), "it counts the opening"
    assert any("SET status" in sql for sql in common), "and the end"
    assert "SELECT 1" not in common, "a check of a connection"
    assert common.total() <= BOUND, common


async def test_a_stored_response_takes_few_statements(
    statements, conversation, say, running
):
    """Of a program with its token, each in a conversation of its own."""
    gate = asyncio.Event()
    # The first byte is sent with the first word.
    say([TextDelta(0, "Hel"), gate, TextDelta(0, "lo."), FinishDelta("stop")])
    headers = await sync_to_async(bearer)(conversation.owner)
    body = {
        "model": conversation.language_model.public_name,
        "input": "Hi",
        "stream": True,
    }

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        async def send_and_open(message: Any) -> None:
            await send(message)
            if message.get("body"):
                gate.set()  # it is subscribed, and the host may end its answer

        await application(scope, receive, send_and_open)

    executed: list[Counter[str]] = []
    transport = httpx.ASGITransport(app=serve)
    try:
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers
        ) as http:
            for number in range(TURNS + 2):
                gate.clear()
                before = len(statements.texts)
                answered = await http.post("/v1/responses", json=body)
                assert "response.completed" in answered.text
                if number >= 2:  # all threads are connected
                    executed.append(Counter(statements.texts[before:]))
    finally:
        await loop_resources.close()
    common = reduce(and_, executed)
    assert any("pg_notify" in sql for sql in common), "it counts the opening"
    assert any("SET status" in sql for sql in common), "and the end"
    assert common.total() <= BOUND_OF_STORED_RESPONSE, common


async def answer(
    conversation: Any, statements: Statements, gate: asyncio.Event
) -> None:
    """The host answers once there is a subscriber: one that comes when the turn is over
    reads its rows."""
    gate.clear()
    turn = await sync_to_async(_open)(conversation, statements)
    engine.submit(turn.pk, conversation.pk)
    async for _ in engine.subscribe(turn.pk, None):
        gate.set()
    assert gate.is_set()


def _open(conversation: Any, statements: Statements) -> Turn:
    note = statements.note
    if note in connection.execute_wrappers:  # it was opened during this test
        turn: Turn = conversation.open_turn([user_message("Hi")]).turn
        return turn
    with connection.execute_wrapper(note):
        turn = conversation.open_turn([user_message("Hi")]).turn
        return turn
