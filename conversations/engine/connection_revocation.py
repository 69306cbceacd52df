"""Close open connections whose session or access token is no longer valid.

A connection is authenticated once and may stay open for hours. `Connections` asks the
database every `INTERVAL` seconds, for all open connections of the process together,
which of their sessions, users and tokens are still valid, and calls `end` of the
others. So a connection is closed within five seconds after its user signs out, changes
the password, is deactivated or deleted, or after its session or token is ended or
expires, in any process. A message that arrives on a connection is checked by its
consumer before it is carried out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextvars import Context
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.sessions.backends.db import SessionStore
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from conversations import engine
from conversations.models.access_token import AccessToken

INTERVAL = 2.0  # seconds between two checks of all connections
BATCH = 500  # values of a query
CREDENTIAL = "parley.credential"  # key in the ASGI scope

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

    @classmethod
    def of_session(cls, user: Any, session_key: str) -> Credential:
        auth_hash = user.get_session_auth_hash()
        return cls(user.pk, session_key=session_key, auth_hash=auth_hash)

    @classmethod
    def of_token(cls, token: AccessToken) -> Credential:
        return cls(token.user_id, token_id=token.pk)


def invalid(credentials: Iterable[Credential]) -> set[Credential]:
    """The credentials that are no longer valid. Synchronous."""
    distinct = set(credentials)
    sessions = _live_sessions({each.session_key for each in distinct} - {""})
    auth_hashes = _auth_hashes({each.user_id for each in distinct if each.session_key})
    tokens = _live_tokens({each.token_id for each in distinct} - {None})
    return {
        each
        for each in distinct
        if (each.token_id is not None and each.token_id not in tokens)
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
    except Exception:
        logger.exception("a connection that is no longer valid was not ended")


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
                "a connection that is no longer valid was not closed", exc_info=exc
            )


closing_tasks = ClosingTasks()


class Connections:
    """The open connections of one event loop."""

    _by_loop: ClassVar[dict[asyncio.AbstractEventLoop, Connections]] = {}

    def __init__(self) -> None:
        self._open: dict[int, tuple[Credential, Callable[[], None]]] = {}
        self._last = 0
        self._timer: asyncio.TimerHandle | None = None
        self._check_task: asyncio.Task[None] | None = None

    @classmethod
    def of_loop(cls) -> Connections:
        loop = asyncio.get_running_loop()
        if (known := cls._by_loop.get(loop)) is None:
            for ended in [other for other in cls._by_loop if other.is_closed()]:
                del cls._by_loop[ended]
            known = cls._by_loop[loop] = cls()
        return known

    def add(
        self, credential: Credential, end: Callable[[], None]
    ) -> Callable[[], None]:
        """Register a connection and return a function that removes it.

        `end` is called once, on this event loop, when `credential` is no longer valid.
        """
        self._last += 1
        number = self._last
        self._open[number] = credential, end
        if self._timer is None and (
            self._check_task is None or self._check_task.done()
        ):
            self._schedule_check()
        return lambda: self._remove(number)

    async def check(self) -> None:
        """End the connections that are no longer valid; one failure stops no other."""
        credentials = {credential for credential, _ in self._open.values()}
        revoked = await engine.read(invalid, credentials) if credentials else set()
        for number, (credential, end) in list(self._open.items()):
            if credential in revoked:
                self._remove(number)
                _end_connection(end)

    def _remove(self, number: int) -> None:
        self._open.pop(number, None)

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
        except (OperationalError, InterfaceError) as exc:
            # While the database is down nothing can be checked; connections stay open.
            logger.warning("open connections are not checked: %s", type(exc).__name__)
        finally:
            self._schedule_check()
