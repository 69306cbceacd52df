"""Close open connections whose session or access token is no longer valid.

A connection is authenticated once and may stay open for hours. `Connections` asks the
database every `INTERVAL` seconds, and at once when a participant was removed, for all
open connections of the process together, which of their sessions, users, tokens and
participants are still valid, and calls `end` of the others. So a connection is closed
within five seconds after its user signs out, changes the password, is deactivated or
deleted, or after its session or token is ended or expires, in any process. A message
that arrives on a connection is checked by its consumer before it is carried out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NoReturn

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.sessions.backends.db import SessionStore
from django.utils import timezone

from conversations import engine
from conversations.access import overload
from conversations.access.errors import TooManyConnections
from conversations.engine import notifications
from conversations.models import Participant
from conversations.models.access_token import AccessToken
from llm.concurrency.per_loop import PerLoop
from llm.db.outages import UNREACHABLE

REVOKED = "revoked"  # kind of notification between processes
INTERVAL = 1.0  # seconds between two checks of all connections; with one, under 2
_RETRY_AFTER = 5.0  # seconds
BATCH = 500  # values of a query
CREDENTIAL = "parley.credential"  # key in the ASGI scope
#: Key in a Django request's META: a function that puts the credential into the scope.
STORE_CREDENTIAL = "parley.store_credential"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Credential:
    """How a connection was authenticated: by a session and password, or by a token.

    It is part of the ASGI scope, which tracebacks show, so its `repr` has no secrets.
    """

    user_id: Any
    session_key: str = field(default="", repr=False)
    auth_hash: str = field(default="", repr=False)  # changes with the password
    token_id: int | None = None
    #: The conversation that the connection shows to a participant; "" for its owner.
    conversation_id: str = ""
    name: str = field(default="", compare=False)  # the user's, for other people

    @classmethod
    def of_session(cls, user: Any, session_key: str) -> Credential:
        auth_hash = user.get_session_auth_hash()
        return cls(user.pk, session_key=session_key, auth_hash=auth_hash)


def invalid(credentials: Iterable[Credential]) -> set[Credential]:
    """The credentials that are no longer valid. Synchronous."""
    distinct = set(credentials)
    sessions = _live_sessions({each.session_key for each in distinct} - {""})
    auth_hashes = _auth_hashes({each.user_id for each in distinct if each.session_key})
    tokens = _live_tokens({each.token_id for each in distinct} - {None})
    joined = _joined({each for each in distinct if each.conversation_id})
    return {
        each
        for each in distinct
        if (each.conversation_id and each not in joined)
        or (each.token_id is not None and each.token_id not in tokens)
        or (each.session_key and each.session_key not in sessions)
        or (each.session_key and auth_hashes.get(each.user_id) != each.auth_hash)
    }


def _live_sessions(keys: Collection[str]) -> set[str]:
    store = import_module(settings.SESSION_ENGINE).SessionStore
    if not keys or not issubclass(store, SessionStore):
        return {key for key in keys if store().exists(key)}
    rows = store.get_model_class().objects.filter(expire_date__gt=timezone.now())
    return _existing_values(rows, "session_key", keys)


def _live_tokens(ids: Collection[Any]) -> set[Any]:
    return _existing_values(AccessToken.objects.live(), "pk", ids)


def _joined(credentials: Collection[Credential]) -> set[Credential]:
    """Those whose user takes part in their conversation."""
    rows = Participant.objects.joined()
    found: set[tuple[Any, str]] = set()
    for batch in _batches({each.conversation_id for each in credentials}):
        matching = rows.filter(conversation__in=batch).order_by()
        found.update(matching.values_list("user_id", "conversation_id"))
    return {
        each for each in credentials if (each.user_id, each.conversation_id) in found
    }


def _auth_hashes(ids: Collection[Any]) -> dict[Any, str]:
    """Session auth hashes of the active users among `ids`."""
    active = get_user_model()._default_manager.filter(is_active=True)
    found: dict[Any, str] = {}
    for batch in _batches(ids):
        for user in active.filter(pk__in=batch).only("password"):
            found[user.pk] = user.get_session_auth_hash()
    return found


def _existing_values(rows: Any, field: str, values: Collection[Any]) -> set[Any]:
    found: set[Any] = set()
    for batch in _batches(values):
        matching = rows.filter(**{f"{field}__in": batch}).order_by()
        found.update(matching.values_list(field, flat=True))
    return found


def _batches(values: Collection[Any]) -> Iterable[list[Any]]:
    ordered = list(values)
    for first in range(0, len(ordered), BATCH):
        yield ordered[first : first + BATCH]


def _end_connection(end: Callable[[], None]) -> None:
    try:
        end()
    except Exception:  # any fault of one connection must not keep the others open
        logger.exception(
            "a connection whose session or token is no longer valid was not ended"
        )


def check_soon() -> None:
    """Check the open connections of all processes at once."""
    check_all_soon()
    engine.publish_notification(REVOKED)


class ClosingTasks:
    """Tasks that close connections.

    The event loop has only weak references to tasks, so this set keeps them alive. It
    also logs failures.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(closing)
        self._running.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (exc := task.exception()):
            logger.error(
                "a connection whose session or token is no longer valid was not closed",
                exc_info=exc,
            )


closing_tasks = ClosingTasks()


class Connections:
    """The open connections of one event loop."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[Credential, Callable[[], None], int, int]] = {}
        #: Open connections by token, or by user as a negative number; 0 for watchers.
        self._counts: Counter[int] = Counter()
        self.full: set[int] = set()  # those of `_counts` that have reached their limit
        self._last = 0
        self._is_stale = False
        self._timer: asyncio.TimerHandle | None = None
        self._check_task: asyncio.Task[None] | None = None

    def add(
        self,
        credential: Credential,
        end: Callable[[], None],
        *,
        is_watcher: bool = False,
        is_checked: bool = False,
    ) -> Callable[[], None]:
        """Register a connection and return a function that removes it. Raises
        TooManyConnections unless `is_checked`, by `check_room`.

        `end` is called once, on this event loop, when `credential` is no longer valid.
        A watcher is no connection and counts as none.
        """
        owner, limit = credential.token_id, settings.TOKEN_CONNECTIONS
        if owner is None:
            owner, limit = -credential.user_id, settings.USER_CONNECTIONS
        if is_watcher:
            owner, limit = 0, 0
        if owner in self.full and not is_checked:
            self._refuse("user" if credential.token_id is None else "token", limit)
        self._counts[owner] += 1
        if limit and self._counts[owner] >= limit:
            self.full.add(owner)
        self._last += 1
        number = self._last
        self._open[number] = credential, end, owner, limit
        if self._timer is None and (
            self._check_task is None or self._check_task.done()
        ):
            self._schedule_check()
        return lambda: self._remove(number)

    def check_room(self, credential: Credential) -> None:
        """Callable in any thread. Raises TooManyConnections."""
        if credential.token_id in self.full:
            self._refuse("token", settings.TOKEN_CONNECTIONS)
        if credential.token_id is None and -credential.user_id in self.full:
            self._refuse("user", settings.USER_CONNECTIONS)

    def __len__(self) -> int:
        return len(self._open) - self._counts[0]

    async def check(self) -> None:
        """End the connections that are no longer valid; one failure stops no other."""
        credentials = {credential for credential, *_ in self._open.values()}
        revoked = await engine.read(invalid, credentials) if credentials else set()
        for number, (credential, end, *_) in list(self._open.items()):
            if credential in revoked:
                self._remove(number)
                _end_connection(end)

    def check_now(self) -> None:
        """Start a check now instead of at the end of the interval."""
        if self._timer is None:  # a check is running, and may have read too early
            self._is_stale = True
            return
        self._timer.cancel()
        self._start_check()

    def _remove(self, number: int) -> None:
        if number not in self._open:
            return
        _credential, _end, owner, limit = self._open.pop(number)
        self._counts[owner] -= 1
        if self._counts[owner] < limit:
            self.full.discard(owner)
        if not self._counts[owner]:
            del self._counts[owner]

    def _refuse(self, kind: str, limit: int) -> NoReturn:
        raise TooManyConnections(
            f"{limit} connections of this {kind} are open; close one first.",
            retry_after=_RETRY_AFTER,
        )

    def _schedule_check(self) -> None:
        # An empty context: the caller's may reference a whole request.
        self._timer = asyncio.get_running_loop().call_later(
            INTERVAL, self._start_check, context=Context()
        )

    def _start_check(self) -> None:
        self._timer = None
        if self._open:
            self._check_task = asyncio.ensure_future(self._check_periodically())

    async def _check_periodically(self) -> None:
        try:
            await self.check()
        except UNREACHABLE as exc:
            # While the database is down nothing can be checked; connections stay open.
            logger.warning(
                "sessions and tokens of open connections could not be checked: %s",
                type(exc).__name__,
            )
        finally:
            self._schedule_check()
            if self._is_stale:
                self._is_stale = False
                self.check_now()


open_connections = PerLoop(Connections)


def count_open() -> int:
    """Connections of this process. Callable in any thread."""
    return sum(len(connections) for _, connections in open_connections.items())


overload.load.connections = count_open


def check_all_soon() -> None:
    """Check the connections of this process. Callable in any thread."""
    for loop, connections in open_connections.items():
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(connections.check_now)


notifications.on(REVOKED, check_all_soon)
