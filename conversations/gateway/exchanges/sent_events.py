"""Idempotency keys over a WebSocket: record a request's events, or repeat them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from conversations.gateway.exchanges.idempotency import (
    MAX_ANSWER,
    BadIdempotencyKey,
    StillAnswering,
    claim,
    fingerprint_of,
    give_up,
)
from conversations.gateway.loop_resources import Resources
from conversations.models.gateway.answered_request import AnsweredRequest, ClaimLost

FIELD = "idempotency_key"
_SOCKET = "websocket"  # in place of a path: HTTP cannot repeat these events
_COMPLETE = frozenset({"response.completed", "response.incomplete"})
_SEPARATOR = b"\n"  # of the stored events

Send = Callable[[bytes], Awaitable[None]]


class SentEvents:
    """Sends events by `send`, and saves all of them before it sends the last one."""

    def __init__(self, row: AnsweredRequest, resources: Resources, send: Send) -> None:
        self.row = row
        self._resources = resources
        self._send = send
        self._texts: list[bytes] = []
        self._size = 0

    async def send(self, text: bytes, kind: str) -> None:
        self._size += len(text)
        if self._size <= MAX_ANSWER:
            self._texts.append(text)
        if kind in _COMPLETE:
            whole = _SEPARATOR.join(self._texts) if self._size <= MAX_ANSWER else None
            await self._resources.database.write(self.row.save_answer, 200, [], whole)
        await self._send(text)

    async def run(self, answering: Awaitable[None]) -> None:
        """Await `answering`. Without a saved answer the key may be used again."""
        try:
            with self._resources.key_leases.renewing(self.row):
                await self._run(answering)
        except ClaimLost as exc:
            raise StillAnswering from exc

    async def _run(self, answering: Awaitable[None]) -> None:
        try:
            await answering
        except (asyncio.CancelledError, OSError):  # which stops the response
            give_up(self.row, self._resources)
            raise
        except ClaimLost:
            raise
        except Exception:
            await self._resources.database.write(self.row.hand_over)
            raise
        await self._resources.database.write(self.row.hand_over)


async def repeat_or_record(
    key: Any, body: Mapping[str, Any], token_id: int, resources: Resources, send: Send
) -> SentEvents | None:
    """Send the saved events of the same request, or return an object that records new
    ones.

    Raises BadIdempotencyKey, IdempotencyKeyReused, StillAnswering, AnswerNotSaved.
    """
    if not isinstance(key, str):
        raise BadIdempotencyKey
    row, is_first = await claim(
        resources.database, token_id, key, fingerprint_of(_SOCKET, body)
    )
    if is_first:
        return SentEvents(row, resources, send)
    for text in row.read_body().split(_SEPARATOR):
        await send(text)
    return None
