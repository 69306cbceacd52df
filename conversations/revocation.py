"""End of open connections whose session or access token is no longer valid.

A connection is admitted once and may stay open for hours. `Connections` asks the
database every `INTERVAL` seconds, for all open connections of the process together,
which of their sessions, users and tokens are still valid, and calls `end` of the
others. So the connections of somebody who signs out, changes the password, is
deactivated or deleted, or whose session or token is ended or expires, are closed within
five seconds, whichever process did it. A message that arrives on a connection is
checked by its consumer before it is carried out.
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
from conversations.tokens import AccessToken

INTERVAL = 2.0  # seconds between two looks at all connections
BATCH = 500  # values of a query
CREDENTIAL = "parley.credential"  # in the scope of a request

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Credential:
    """What a connection was admitted by: a session and a password, or a token.

    It is part of an ASGI scope, which tracebacks show, so its `repr` has no secrets.
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
    """Those that would not be admitted any more. Synchronous."""
    asked = set(credentials)
    sessions = _live_sessions({each.session_key for each in asked} - {""})
    auth_hashes = _auth_hashes({each.user_id for each in asked if each.session_key})
    tokens = _live_tokens({each.token_id for each in asked} - {None})
    return {
        each
        for each in asked
        if (each.token_id is not None and each.token_id not in tokens)
        or (each.session_key and each.session_key not in sessions)
        or (each.session_key and auth_hashes.get(each.user_id) != each.auth_hash)
    }


def _live_sessions(keys: Collection[str]) -> set[str]:
    store = import_module(settings.SESSION_ENGINE).SessionStore
    if not keys or not issubclass(store, SessionStore):
        return {key for key in keys if store().exists(key)}
    rows = store.get_model_class().objects.filter(expire_date__gt=timezone.now())
    return _found(rows, "session_key", keys)


def _live_tokens(ids: Collection[Any]) -> set[Any]:
    return _found(AccessToken.objects.live(), "pk", ids)


def _auth_hashes(ids: Collection[Any]) -> dict[Any, str]:
    """Of those users who are active."""
    active = get_user_model()._default_manager.filter(is_active=True)
    found: dict[Any, str] = {}
    for some in _batches(ids):
        for user in active.filter(pk__in=some).only("password"):
            found[user.pk] = user.get_session_auth_hash()
    return found


def _found(rows: Any, field: str, values: Collection[Any]) -> set[Any]:
    found: set[Any] = set()
    for some in _batches(values):
        matching = rows.filter(**{f"{field}__in": some}).order_by()
        found.update(matching.values_list(field, flat=True))
    return found


def _batches(values: Collection[Any]) -> Iterable[list[Any]]:
    ordered = list(values)
    for first in range(0, len(ordered), BATCH):
        yield ordered[first : first + BATCH]


def _end(end: Callable[[], None]) -> None:
    try:
        end()
    except Exception:
        logger.exception("a connection that is no longer valid was not ended")


class EndingTasks:
    """Tasks that close connections. The event loop alone would not keep them alive, nor
    would anybody learn that one has failed."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()

    def start(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(closing)
        self._running.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (exc := task.exception()):
            logger.error(
                "a connection that is no longer valid was not closed", exc_info=exc
            )


ending_tasks = EndingTasks()


class Connections:
    """The open connections of one event loop. `add` returns what takes one away."""

    _of: ClassVar[dict[asyncio.AbstractEventLoop, Connections]] = {}

    def __init__(self) -> None:
        self._open: dict[int, tuple[Credential, Callable[[], None]]] = {}
        self._last = 0
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    @classmethod
    def of_loop(cls) -> Connections:
        loop = asyncio.get_running_loop()
        if (known := cls._of.get(loop)) is None:
            for ended in [other for other in cls._of if other.is_closed()]:
                del cls._of[ended]
            known = cls._of[loop] = cls()
        return known

    def add(
        self, credential: Credential, end: Callable[[], None]
    ) -> Callable[[], None]:
        """`end` is called once, on this event loop, when it is no longer valid."""
        self._last += 1
        number = self._last
        self._open[number] = credential, end
        if self._timer is None and (self._looking is None or self._looking.done()):
            self._wait()
        return lambda: self._remove(number)

    async def look(self) -> None:
        """End those that are no longer valid, each whatever becomes of the others."""
        asked = {credential for credential, _ in self._open.values()}
        gone = await engine.read(invalid, asked) if asked else set()
        for number, (credential, end) in list(self._open.items()):
            if credential in gone:
                self._remove(number)
                _end(end)

    def _remove(self, number: int) -> None:
        self._open.pop(number, None)

    def _wait(self) -> None:
        # In no context of a caller's, who may hold on to a whole request.
        self._timer = asyncio.get_running_loop().call_later(
            INTERVAL, self._start, context=Context()
        )

    def _start(self) -> None:
        self._timer = None
        if self._open:
            self._looking = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        try:
            await self.look()
        except (OperationalError, InterfaceError) as exc:
            # While the database is away nobody can be asked, and nothing is done.
            logger.warning("open connections are not checked: %s", type(exc).__name__)
        finally:
            self._wait()
