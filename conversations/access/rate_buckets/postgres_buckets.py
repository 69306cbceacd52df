"""Token buckets in PostgreSQL, changed by one function in one round trip.

The module `_unlogged_tables` of the migrations creates the function. Charges use
connections of their own: on Django's, a rollback of the caller would undo them, and
their locks would last until the end of the caller's transaction.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import psycopg
from psycopg import AsyncConnection, Connection

from conversations.access.rate_buckets.buckets import (
    Charge,
    SharedBuckets,
    Verdict,
    verdict_of,
)
from llm.concurrency.per_loop import PerLoop
from llm.db.connection_parameters import short_parameters

CONNECT_TIMEOUT = 2  # seconds

_TAKE = """
SELECT is_allowed, levels FROM conversations_take_charges(
  %s::text[], %s::double precision[], %s::double precision[],
  %s::boolean[], %s::boolean[]
)
"""


class PostgresBuckets(SharedBuckets):
    """One connection for all threads, and one for each event loop; each executes one
    request after another."""

    def __init__(self) -> None:
        super().__init__("PostgreSQL")
        self._lock = threading.Lock()
        self._connection: Connection[Any] | None = None
        self._loops = PerLoop(_LoopConnection)

    async def aclose(self) -> None:
        if loop_connection := self._loops.pop():
            await loop_connection.close()
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _request(self, owner: str, charges: Sequence[Charge]) -> Verdict:
        with self._lock:
            if self._connection is None or self._connection.closed:
                self._connection = Connection.connect(**_parameters())
            cursor = self._connection.execute(_TAKE, _arguments(owner, charges))
            return verdict_of(charges, *cursor.fetchall()[0])

    async def _arequest(self, owner: str, charges: Sequence[Charge]) -> Verdict:
        connection = await self._loops().connect()
        cursor = await connection.execute(_TAKE, _arguments(owner, charges))
        return verdict_of(charges, *(await cursor.fetchall())[0])

    @cached_property
    def _failures(self) -> tuple[type[Exception], ...]:
        return psycopg.Error, OSError, TimeoutError


class _LoopConnection:
    """The connection of one event loop, opened at its first use."""

    def __init__(self) -> None:
        self._connection: AsyncConnection[Any] | None = None
        self._connecting = asyncio.Lock()

    async def connect(self) -> AsyncConnection[Any]:
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                self._connection = await AsyncConnection.connect(**_parameters())
            return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


def _parameters() -> dict[str, Any]:
    return short_parameters("limits", connect_timeout=CONNECT_TIMEOUT, autocommit=True)


def _arguments(owner: str, charges: Sequence[Charge]) -> list[list[Any]]:
    return [
        [f"{owner}:{each.name}" for each in charges],
        [float(each.limit) for each in charges],
        [float(each.amount) for each in charges],
        [each.is_taken for each in charges],
        [each.is_unconditional for each in charges],
    ]
