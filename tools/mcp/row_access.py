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

from llm.concurrency.database_thread import run_in_database_thread
from llm.db.bound_secrets import Binding
from llm.db.encrypted_field import OriginChanged, SecretUnavailable
from tools.errors import FetchError, ToolError
from tools.mcp.errors import McpError, SignInFailed, ToolNotApproved
from tools.mcp.tool_definition import ToolDefinition

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from tools.models.mcp_server import McpServer, McpTool

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

RENEWAL_CLAIM = timedelta(seconds=30)  # a claim to renew tokens expires after this


@dataclass
class MemoryTokenStore:
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
class RowTokenStore:
    """Token store for one sign-in; empty after a newer sign-in or a sign-out."""

    server_id: int
    since: datetime | None  # time of the sign-in; None if there was none
    binding: Binding  # ties the tokens to the server's origin

    async def load(self) -> Mapping[str, Any]:
        """Raises SignInFailed if the tokens cannot be decrypted."""
        state: Mapping[str, Any] = await _run_in_thread(self._load)
        return state

    async def save(self, state: Mapping[str, Any]) -> None:
        from tools.models.mcp_oauth import sign_in_columns

        columns = sign_in_columns(state)
        secret = columns["sign_in"].bind(self.binding)
        await self._update(**{**columns, "sign_in": secret})

    async def claim(self) -> bool:
        return bool(await _run_in_thread(self._claim))

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
        return bool(free.update(renewing_until=now + RENEWAL_CLAIM))

    async def _update(self, **columns: Any) -> None:
        await _run_in_thread(lambda: self._rows().update(**columns))

    def _rows(self) -> QuerySet[McpServer]:
        from tools.models.mcp_server import McpServer

        rows = McpServer.objects.filter(pk=self.server_id, signed_in_at=self.since)
        return rows if self.since else rows.none()


@dataclass(frozen=True, slots=True)
class RowNotice:
    """Writes listings and errors of sessions to the server's row."""

    server_id: int

    async def report_listing(
        self, found: Sequence[ToolDefinition], about: Mapping[str, str]
    ) -> None:
        await self._update_row(lambda row: row.update_listing(found, about))

    async def report_failure(self, failure: ToolError) -> None:
        await self._update_row(lambda row: row.update_error(describe_failure(failure)))

    async def _update_row(self, act: Callable[[McpServer], None]) -> None:
        """Updates the row. A database error is logged: the call must not fail."""
        try:
            await _run_in_thread(lambda: self._load_and_apply(act))
        except DatabaseError as exc:
            logger.warning("MCP server %s: %s", self.server_id, type(exc).__name__)

    def _load_and_apply(self, act: Callable[[McpServer], None]) -> None:
        from tools.models.mcp_server import McpServer

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
            raise ToolNotApproved("the staff no longer allow this tool.")
        if row.difference == row.Difference.GONE:
            raise ToolNotApproved("the tool's server no longer offers this tool.")
        if row.difference or row.pinned.digest != digest:
            raise ToolNotApproved

    def _load(self) -> McpTool | None:
        from tools.models.mcp_server import McpTool

        return McpTool.objects.filter(pk=self.pin_id).first()


def describe_failure(failure: ToolError) -> str:
    """The error message, and what staff can do about it."""
    text = str(failure)
    advice = failure.advice if isinstance(failure, FetchError | McpError) else ""
    return f"{text[:1].upper()}{text[1:]} {advice}".strip()


async def _run_in_thread(act: Callable[[], Result]) -> Result:
    """Runs `act` in a new thread: the thread of the request may have ended."""
    return await asyncio.to_thread(_run_and_close_connection, act)


def _run_and_close_connection(act: Callable[[], Result]) -> Result:
    try:
        return act()
    finally:
        connection.close()
