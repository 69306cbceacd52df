"""PostgreSQL's notices, read on the event loop as they arrive.

psycopg's `notifies()` sets up and removes a reader and a timer for each of them, which
costs ten times as much.
Source: https://www.psycopg.org/psycopg3/docs/api/pq.html
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from psycopg import AsyncConnection


async def read_notices(
    connection: AsyncConnection[Any], on_notice: Callable[[str, str], None]
) -> None:
    """Call `on_notice` with channel and payload of each notice. Never returns; raises
    the exceptions of `on_notice`, and psycopg's when the connection ends. Nothing else
    may use the connection meanwhile.

    psycopg itself reads notices that come with the answers to LISTEN: have them
    received by `add_notify_handler`.
    """
    loop, pgconn = asyncio.get_running_loop(), connection.pgconn
    ended: asyncio.Future[None] = loop.create_future()
    socket, is_reading = connection.fileno(), True

    def stop() -> None:
        """Only once: after an error another connection may have the socket's number."""
        nonlocal is_reading
        if is_reading:
            is_reading = False
            loop.remove_reader(socket)

    def read() -> None:
        try:
            pgconn.consume_input()
            while (notice := pgconn.notifies()) is not None:
                on_notice(notice.relname.decode(), notice.extra.decode())
        except Exception as exc:
            stop()
            if not ended.done():
                ended.set_exception(exc)

    loop.add_reader(socket, read)
    try:
        read()  # what came since the answer to LISTEN
        await ended
    finally:
        stop()
