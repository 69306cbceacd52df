"""Database access of MCP sessions: token store, status reports and approval checks.

The models pass themselves, because they build the sessions' values from these classes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from django.db import DatabaseError, connection, models, transaction
from django.utils import timezone

from llm.concurrency.database_thread import run_in_database_thread
from llm.db.bound_secrets import Binding
from llm.db.encrypted_field import OriginChanged, Secret, SecretUnavailable
from tools.errors import FetchError, ToolError
from tools.mcp.errors import (
    McpConnectFailed,
    McpError,
    SignInFailed,
    SignInNeeded,
    ToolNotApproved,
)
from tools.mcp.server_spec import ServerSpec
from tools.mcp.tool_definition import ToolDefinition

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

RENEWAL_CLAIM = timedelta(seconds=30)  # a claim to renew tokens expires after this


class ServerRow(Protocol):
    """What a session writes to its server's row."""

    def update_listing(
        self,
        found: Sequence[ToolDefinition],
        about: Mapping[str, str],
        seconds: float | None,
    ) -> None: ...

    def add_to_listing(
        self, found: Sequence[ToolDefinition], about: Mapping[str, str]
    ) -> None: ...

    def record_error(self, error: str, startup_output: str = "") -> None: ...

    def record_failed_call(self, tool: str, text: str) -> None: ...


class UserSignInRow(Protocol):
    """The sign-in of one user."""

    is_usable: bool

    def with_tokens(self, server: ServerSpec) -> ServerSpec: ...


class ClientRow(Protocol):
    """The row with the client that registered itself for a server."""

    def forget_client(self, client_id: str) -> None: ...


class ApprovedToolRow(Protocol):
    def check_approval(self, digest: str, signed_in_at: datetime | None) -> None:
        """Raises ToolNotApproved unless staff approved the tool with this digest, and
        SignInFailed if the sign-in of that time has ended."""
        ...


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

    model: type[models.Model]  # has the columns of `tools.models.stored_sign_in`
    row_id: int
    since: datetime | None  # time of the sign-in; None if there was none
    binding: Binding  # ties the tokens to the server's origin

    async def load(self) -> Mapping[str, Any]:
        """Raises SignInFailed if the tokens cannot be decrypted."""
        state: Mapping[str, Any] = await _run_in_thread(self._load)
        return state

    async def save(self, state: Mapping[str, Any]) -> None:
        columns = sign_in_columns(state)
        if secret := columns["sign_in"]:
            columns["sign_in"] = secret.bind(self.binding)
        await self._update(**columns)

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
                "the address of this MCP server changed after the sign-in; a member of"
                " staff must sign in again."
            ) from exc
        except SecretUnavailable as exc:
            raise SignInFailed(
                "the tokens of this MCP server cannot be decrypted; a member of staff"
                " must sign in again."
            ) from exc
        return state

    def delete(self) -> None:
        self._rows().delete()

    def _claim(self) -> bool:
        now = timezone.now()
        free = self._rows().exclude(renewing_until__gt=now)
        return bool(free.update(renewing_until=now + RENEWAL_CLAIM))

    async def _update(self, **columns: Any) -> None:
        await _run_in_thread(lambda: self._rows().update(**columns))

    def _rows(self) -> models.QuerySet[Any]:
        rows = self.model._default_manager.all()
        if not self.since:
            return rows.none()
        return rows.filter(pk=self.row_id, signed_in_at=self.since)


@dataclass(frozen=True, slots=True)
class RowRegistration:
    """The registered client in the row of its server."""

    model: type[models.Model]  # its rows are `ClientRow`s
    server_id: int

    async def forget(self, client_id: str) -> None:
        await _run_in_thread(lambda: self._forget(client_id))

    @transaction.atomic
    def _forget(self, client_id: str) -> None:
        rows: models.QuerySet[Any] = self.model._default_manager.select_for_update()
        row: ClientRow | None = rows.filter(pk=self.server_id).first()
        if row is not None:
            row.forget_client(client_id)


@dataclass(frozen=True, slots=True)
class RowNotice:
    """Writes listings and errors of sessions to the server's row."""

    model: type[models.Model]  # its rows are `ServerRow`s
    server_id: int
    #: Users sign in there; each sees only the tools that the server shows to him.
    by_user: bool = False

    async def report_listing(
        self,
        found: Sequence[ToolDefinition],
        about: Mapping[str, str],
        seconds: float | None = None,
    ) -> None:
        if self.by_user:
            await self._update_row(lambda row: row.add_to_listing(found, about))
            return
        await self._update_row(lambda row: row.update_listing(found, about, seconds))

    async def report_failure(self, failure: ToolError) -> None:
        if self.by_user and isinstance(failure, SignInFailed):
            return  # it concerns one user
        await self._update_row(lambda row: record_failure(row, failure))

    async def report_failed_call(self, tool: str, failure: ToolError) -> None:
        text = str(type(failure)())  # without the server's words
        await self._update_row(lambda row: row.record_failed_call(tool, text))

    async def _update_row(self, act: Callable[[ServerRow], None]) -> None:
        """Update the row. A database error is logged: the call must not fail."""
        try:
            await _run_in_thread(lambda: self._load_and_apply(act))
        except DatabaseError as exc:
            logger.warning("MCP server %s: %s", self.server_id, type(exc).__name__)

    def _load_and_apply(self, act: Callable[[ServerRow], None]) -> None:
        rows: models.QuerySet[Any] = self.model._default_manager.all()
        if row := rows.filter(pk=self.server_id).first():
            act(row)


@dataclass(frozen=True, slots=True)
class RowPin:
    """Checks a tool's row before each call.

    A session's own listing may be minutes old; the row has changes that the session of
    another process, or a connection test, has seen since.
    """

    model: type[models.Model]  # its rows are `ApprovedToolRow`s
    pin_id: int
    signed_in_at: datetime | None = None  # of the sign-in that the call uses, if any

    async def check(self, digest: str) -> None:
        row = await run_in_database_thread(self._load)
        if row is None:
            raise ToolNotApproved("the staff no longer allow this tool.")
        row.check_approval(digest, self.signed_in_at)

    def _load(self) -> ApprovedToolRow | None:
        rows: models.QuerySet[Any] = self.model._default_manager.select_related(
            "server"
        )
        row: ApprovedToolRow | None = rows.filter(pk=self.pin_id).first()
        return row


@dataclass(frozen=True, slots=True)
class RowSignIns:
    """The stored sign-ins of users at one server."""

    model: type[models.Model]  # its rows are `UserSignInRow`s
    server_id: int

    async def use(self, server: ServerSpec, user_id: int | None) -> ServerSpec:
        """The server with this user's tokens, which are looked up before each call: a
        sign-out holds at once. Raises SignInNeeded."""
        row = await run_in_database_thread(lambda: self._load(user_id))
        if row is None or not row.is_usable:
            raise SignInNeeded
        return row.with_tokens(server)

    async def end(self, server: ServerSpec) -> None:
        """A sign-in that is newer than the tokens of `server` stays."""
        store = getattr(server.oauth, "store", None)
        assert isinstance(store, RowTokenStore), "`use` gave it"
        await run_in_database_thread(store.delete)

    def _load(self, user_id: int | None) -> UserSignInRow | None:
        if user_id is None:
            return None
        rows: models.QuerySet[Any] = self.model._default_manager.select_related(
            "server"
        )
        row: UserSignInRow | None = rows.filter(
            server=self.server_id, user=user_id
        ).first()
        return row


def sign_in_columns(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a token store as columns of the server's row. Without tokens nobody
    is signed in, and nothing is stored."""
    tokens, expires_at = state.get("tokens") or {}, state.get("expires_at")
    until = None if expires_at is None else datetime.fromtimestamp(expires_at, UTC)
    return {
        "sign_in": Secret.of(json.dumps(dict(state))) if tokens else "",
        "signed_in_until": until,
        "sign_in_renews": "refresh_token" in tokens,
        "renewing_until": None,
    }


def describe_failure(failure: ToolError) -> str:
    """The error message, and what staff can do about it."""
    text = str(failure)
    advice = failure.advice if isinstance(failure, FetchError | McpError) else ""
    return f"{text[:1].upper()}{text[1:]} {advice}".strip()


def record_failure(row: ServerRow, failure: ToolError) -> None:
    """Why no session could be opened."""
    output = failure.startup_output if isinstance(failure, McpConnectFailed) else ""
    row.record_error(describe_failure(failure), output)


async def _run_in_thread(act: Callable[[], Result]) -> Result:
    """Run `act` in a new thread: the thread of the request may have ended."""
    return await asyncio.to_thread(_run_and_close_connection, act)


def _run_and_close_connection(act: Callable[[], Result]) -> Result:
    try:
        return act()
    finally:
        connection.close()
