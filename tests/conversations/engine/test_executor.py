"""Calls from asynchronous code to the database."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator

import pytest

from conversations.engine.database.executor import Database, DatabaseClosed

pytestmark = pytest.mark.django_db(transaction=True)
PATIENT = 60.0  # seconds; no test takes as many


@pytest.fixture
async def database() -> AsyncGenerator[Database, None]:
    database = Database()
    yield database
    await database.close()


async def test_the_event_loop_runs_while_a_call_takes_long(database: Database):
    may_go_on, order = threading.Event(), list[str]()
    first = database.write(may_go_on.wait, PATIENT)
    behind = database.write(order.append, "written")
    order.append("the loop goes on")
    assert not first.done()
    may_go_on.set()
    assert await first
    await behind
    assert order == ["the loop goes on", "written"]


async def test_the_caller_gets_the_exception_of_a_call(database: Database):
    with pytest.raises(ValueError, match="three"):
        await database.read(int, "three")


async def test_a_closed_database_takes_no_calls():
    database = Database()
    await database.close()
    with pytest.raises(DatabaseClosed):
        database.write(str, 4)
