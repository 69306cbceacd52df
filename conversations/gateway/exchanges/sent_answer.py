"""A copy of the answer that an exchange sends, up to a size."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from conversations.gateway.http import Exchange


class SentAnswer:
    """Copies what `exchange` sends from now on. `body` is None beyond `limit` bytes
    unless `cuts`, which keeps the beginning."""

    def __init__(
        self,
        exchange: Exchange,
        limit: int,
        *,
        cuts: bool = False,
        before_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`before_end` is awaited before the last piece is sent."""
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []
        self.size = 0
        self.is_complete = False
        self._chunks: list[bytes] = []
        self._limit = limit
        self._cuts = cuts
        self._before_end = before_end
        self._send = exchange.send
        exchange.send = self.send

    @property
    def body(self) -> bytes | None:
        if self.size > self._limit and not self._cuts:
            return None
        return b"".join(self._chunks)

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self._note(message.get("body", b""))
            if not message.get("more_body", False):
                self.is_complete = True
                if self._before_end is not None:
                    await self._before_end()
        await self._send(message)

    def _note(self, chunk: bytes) -> None:
        room = self._limit - self.size
        self.size += len(chunk)
        if room > 0:
            self._chunks.append(chunk[:room])
        elif not self._cuts:
            self._chunks.clear()
