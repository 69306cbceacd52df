"""Database access of MCP sessions: token store, status reports and approval checks."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from django.db import DatabaseError, connection
from django.utils import timezone

from llm.bound_secrets import Binding
from llm.database_thread import run_in_database_thread
from llm.encrypted import OriginChanged, SecretUnavailable
from tools.errors import FetchError, ToolError
from tools.mcp.definitions import Definition
from tools.mcp.errors import HeldBack, McpError, SignInFailed

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from tools.mcp.rows import McpServer, McpTool

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

RENEWING = timedelta(seconds=30)  # a claim to renew tokens expires after this


@dataclass
class Held:
    """Token store in memory, for a sign-in that is in progress."""

    state: dict[str, Any] = field(default_factory=dict)

    async def load(self) -> Mapping[str, Any]:
        return self.state

    async def save(self, state: Mapping[str, Any]) -> None:
        self.state = dict(state)

    async def claim(self) -> bool:
        return True

    async def release(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class RowStore:
    """Token store for one sign-in; empty after a newer sign-in or a sign-out."""

    server_id: int
    since: datetime | None  # time of the sign-in; None if there was none
    binding: Binding  # ties the tokens to the server's origin

    async def load(self) -> Mapping[str, Any]:
        """Raises SignInFailed if the tokens cannot be decrypted."""
        state: Mapping[str, Any] = await _asked(self._load)
        return state

    async def save(self, state: Mapping[str, Any]) -> None:
        from tools.mcp.oauth_rows import sign_in_columns

        columns = sign_in_columns(state)
        secret = columns["sign_in"].bound_to(self.binding)
        await self._update(**{**columns, "sign_in": secret})

    async def claim(self) -> bool:
        return bool(await _asked(self._claim))

    async def release(self) -> None:
        await self._update(renewing_until=None)

    def _load(self) -> Mapping[str, Any]:
        if (row := self._rows().first()) is None or not row.sign_in:
            return {}
        try:
            stored = replace(row.sign_in, binding=self.binding)
            state: dict[str, Any] = json.loads(stored.reveal())
        except OriginChanged as exc:
            raise SignInFailed(
                "the address of this MCP server changed after a member of staff signed"
                " in; they must sign in again."
            ) from exc
        except SecretUnavailable as exc:
            raise SignInFailed(
                "the tokens of this MCP server cannot be read; somebody of the staff"
                " must sign in again."
            ) from exc
        return state

    def _claim(self) -> bool:
        now = timezone.now()
        free = self._rows().exclude(renewing_until__gt=now)
        return bool(free.update(renewing_until=now + RENEWING))

    async def _update(self, **columns: Any) -> None:
        await _asked(lambda: self._rows().update(**columns))

    def _rows(self) -> QuerySet[McpServer]:
        from tools.mcp.rows import McpServer

        rows = McpServer.objects.filter(pk=self.server_id, signed_in_at=self.since)
        return rows if self.since else rows.none()


@dataclass(frozen=True, slots=True)
class RowNotice:
    """Writes listings and errors of sessions to the server's row."""

    server_id: int

    async def listed(
        self, found: Sequence[Definition], about: Mapping[str, str]
    ) -> None:
        await self._act(lambda row: row.notice_listing(found, about))

    async def failed(self, failure: ToolError) -> None:
        await self._act(lambda row: row.notice_error(told(failure)))

    async def _act(self, act: Callable[[McpServer], None]) -> None:
        """Updates the row. A database error is logged: the call must not fail."""
        try:
            await _asked(lambda: self._written(act))
        except DatabaseError as exc:
            logger.warning("MCP server %s: %s", self.server_id, type(exc).__name__)

    def _written(self, act: Callable[[McpServer], None]) -> None:
        from tools.mcp.rows import McpServer

        if row := McpServer.objects.filter(pk=self.server_id).first():
            act(row)


@dataclass(frozen=True, slots=True)
class RowPin:
    """Checks a tool's row before each call.

    A session's own listing may be minutes old; the row has changes that the session of
    another process, or a connection test, has seen since.
    """

    pin_id: int

    async def check(self, digest: str) -> None:
        row = await run_in_database_thread(self._load)
        if row is None:
            raise HeldBack("the staff no longer allow this tool.")
        if row.difference == row.Difference.GONE:
            raise HeldBack("the tool's server no longer offers this tool.")
        if row.difference or row.pinned.digest != digest:
            raise HeldBack

    def _load(self) -> McpTool | None:
        from tools.mcp.rows import McpTool

        return McpTool.objects.filter(pk=self.pin_id).first()


def told(failure: ToolError) -> str:
    """The error message, and what staff can do about it."""
    text = str(failure)
    advice = failure.advice if isinstance(failure, FetchError | McpError) else ""
    return f"{text[:1].upper()}{text[1:]} {advice}".strip()


async def _asked(act: Callable[[], Result]) -> Result:
    """Runs `act` in a new thread: the thread of the request may have ended."""
    return await asyncio.to_thread(_on_a_connection_of_its_own, act)


def _on_a_connection_of_its_own(act: Callable[[], Result]) -> Result:
    try:
        return act()
    finally:
        connection.close()
