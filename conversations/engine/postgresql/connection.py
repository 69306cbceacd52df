"""Asynchronous connection to PostgreSQL for the event log, beside Django's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection

from llm.db.connection_parameters import short_parameters

POSTGRES_ERRORS = (psycopg.Error, OSError, TimeoutError)


class StatementConnection:
    """Executes statements one after another, each in a transaction of its own. Connects
    when it is needed."""

    def __init__(self) -> None:
        self.connection_count = 0  # a new one may find the unlogged tables empty
        self._connection: AsyncConnection[Any] | None = None
        self._connecting = asyncio.Lock()

    async def connect(self) -> AsyncConnection[Any]:
        """Raises psycopg's errors."""
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                self._connection = await AsyncConnection.connect(
                    **short_parameters("events"), autocommit=True
                )
                self.connection_count += 1
            return self._connection

    async def fetch(self, sql: str, parameters: Mapping[str, Any]) -> list[Any]:
        """Raises psycopg's errors."""
        connection = await self.connect()
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(sql.encode(), parameters)
            return await cursor.fetchall() if cursor.description else []

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*POSTGRES_ERRORS):  # it is dropped in any case
                await connection.close()
