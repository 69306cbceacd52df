"""PostgreSQL's notices on the event loop."""

from __future__ import annotations

import asyncio

import pytest
from django.db import connection
from psycopg import AsyncConnection, OperationalError

from conversations.engine.database.listening import read_notices
from llm.db.connection_parameters import connection_parameters

pytestmark = [
    pytest.mark.skipif(
        connection.vendor != "postgresql", reason="SQLite has no notices"
    ),
    pytest.mark.django_db(transaction=True),
]


async def connect() -> AsyncConnection:
    return await AsyncConnection.connect(**connection_parameters(), autocommit=True)


async def test_each_arrives_in_order_until_the_connection_ends():
    received = asyncio.Queue[tuple[str, str]]()
    async with await connect() as listening, await connect() as other:
        await listening.execute("LISTEN test_notices")
        reading = asyncio.ensure_future(
            read_notices(listening, lambda *notice: received.put_nowait(notice))
        )
        for text in ("one", "two", "für drei"):
            await other.execute("SELECT pg_notify('test_notices', %s)", [text])
        for text in ("one", "two", "für drei"):
            assert await received.get() == ("test_notices", text)
        pid = listening.info.backend_pid
        await other.execute("SELECT pg_terminate_backend(%s)", [pid])
        with pytest.raises(OperationalError):
            await reading


async def test_an_error_of_the_receiver_ends_the_reading():
    class Refused(Exception): ...

    def refuse(*_: str) -> None:
        raise Refused

    async with await connect() as listening, await connect() as other:
        await listening.execute("LISTEN test_notices")
        reading = asyncio.ensure_future(read_notices(listening, refuse))
        await other.execute("NOTIFY test_notices, 'one'")
        with pytest.raises(Refused):
            await reading
