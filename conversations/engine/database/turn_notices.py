"""Notices of PostgreSQL that wake the workers for a turn, sent in the transaction that
makes it claimable.

A notice only says "look at this turn". The claim decides whether there is something to
do and which process does it, so a notice may come twice, late, or not at all: the sweep
finds the turn.

Source: https://www.postgresql.org/docs/15/sql-notify.html
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db import connection
from django.utils import timezone
from psycopg import AsyncConnection

from conversations.engine.database.listening import read_notices
from conversations.engine.process.task_shutdown import cancel_and_wait
from llm.db.connection_parameters import connection_parameters
from llm.db.statements import Statement, fetch_rows
from tools.execute import format_trace

logger = logging.getLogger(__name__)

CHANNEL = "parley_turns"
BACKOFF = 5.0  # seconds; longest pause between two attempts to connect
RETENTION = timedelta(days=1)  # for which a job of an earlier version is kept

_NOTIFY = """
SELECT pg_notify(%s, concat_ws(' ', id, conversation_id, parent_id IS NULL))
FROM conversations_turn WHERE id = %s
"""


@dataclass(frozen=True, slots=True)
class TurnNotice:
    turn_id: str
    conversation_id: str
    is_first: bool  # of its conversation

    @classmethod
    def parse(cls, payload: str) -> TurnNotice:
        turn_id, conversation_id, is_first = payload.split()
        return cls(turn_id, conversation_id, is_first == "t")

    @property
    def payload(self) -> str:
        flag = "t" if self.is_first else "f"
        return f"{self.turn_id} {self.conversation_id} {flag}"


def enqueue(turn_id: str) -> None:
    """Wake the workers for the turn after the caller's transaction is committed."""
    fetch_rows(_NOTIFY, [CHANNEL, turn_id])


def notice_call(turn_id: str, conversation_id: str, is_first: bool) -> Statement:
    """What `enqueue` does, as an expression for the statement that inserts the turn."""
    notice = TurnNotice(turn_id, conversation_id, is_first)
    return "pg_notify(%s, %s)", [CHANNEL, notice.payload]


def clean_up() -> None:
    """Delete the jobs that processes of earlier versions have written for turns: those
    used procrastinate instead of notices."""
    before = timezone.now() - RETENTION
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM procrastinate_jobs AS job WHERE queue_name = 'turns' AND NOT"
            " EXISTS (SELECT FROM procrastinate_events AS event"
            " WHERE event.job_id = job.id AND event.at > %s)",
            [before],
        )


class TurnNotices:
    """Calls `wake` with each notice. It has a connection of its own, on the event
    loop."""

    def __init__(self, wake: Callable[[TurnNotice], None]) -> None:
        self._wake = wake
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        await cancel_and_wait([self._task])

    async def _run(self) -> None:
        pause = 0.2
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._listen()
            except Exception as exc:
                logger.warning(
                    "PostgreSQL's notices of new turns cannot be read: %s",
                    format_trace(exc),
                )
            if asyncio.get_running_loop().time() - began > BACKOFF:
                pause = 0.2
            await asyncio.sleep(pause)  # meanwhile the sweep finds the turns
            pause = min(2 * pause, BACKOFF)

    async def _listen(self) -> None:
        """Raises psycopg's errors when the connection ends."""
        async with await AsyncConnection.connect(
            **connection_parameters(), autocommit=True
        ) as listening:
            listening.add_notify_handler(lambda n: self._receive(n.channel, n.payload))
            await listening.execute(f"LISTEN {CHANNEL}")
            await read_notices(listening, self._receive)

    def _receive(self, channel: str, payload: str) -> None:
        self._wake(TurnNotice.parse(payload))
