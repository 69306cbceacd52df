"""Preparation before a process serves or works: lock, connections, migrations."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import get_context
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection

from project.backups.interrupted_restore import refuse_unfinished
from project.environment.configuration_error import ConfigurationError
from project.startup.data_folder import InUse, lock_folder
from project.startup.first_start import Outcome, first_start
from project.startup.isolated_tools import log_isolation
from tools.models import Tool

logger = logging.getLogger(__name__)

_LOCK_KEY = 7_262_317  # arbitrary key of the PostgreSQL advisory lock
_PAUSE = 0.1  # seconds between two attempts to get the lock


def lock_data_folder() -> AbstractContextManager[Any]:
    """Lock the data folder in the embedded delivery, where one process runs turns.

    Raises ConfigurationError if another process has locked it.
    """
    if settings.IS_SCALED:
        return nullcontext()
    try:
        return lock_folder(settings.DATA)
    except InUse as exc:
        raise ConfigurationError(
            "PARLEY_DATA", f"{exc}; stop that process or use another folder."
        ) from exc


def prepare_database() -> None:
    """Migrate for a command that may run before the first start of this version.

    Raises ConfigurationError if migrations are pending and a server runs.
    """
    _connect()
    if has_pending_migrations():
        with lock_data_folder():
            with _in_child(migrate):
                pass
            Tool.objects.sync()


def prepare(load: Callable[[], None] = lambda: None) -> Outcome:
    """Run migrations and the first start; concurrent processes wait for one another.

    `load` imports what this process needs afterwards, while a child process migrates.
    It must not use the database.
    """
    _connect()
    refuse_unfinished()
    if settings.REDIS_URL:
        _check_redis()
    with _in_child(migrate):
        load()
    with _hold_lock():
        outcome = first_start()
    log_isolation()
    return outcome


def migrate() -> None:
    """Run `migrate` if migrations are pending; without that check it takes a second."""
    with _hold_lock():
        if has_pending_migrations():
            call_command("migrate", verbosity=0, interactive=False)


def has_pending_migrations() -> bool:
    try:
        call_command("migrate", verbosity=0, check_unapplied=True)
    except SystemExit:  # its exit code 1
        return True
    return False


@contextmanager
def _in_child(work: Callable[[], None]) -> Iterator[None]:
    """Run `work` in a child process, which prints its own errors, beside the body.

    Migrations use 20 MB, which the server's process would never return to the system.
    """
    connection.close()  # a connection cannot be shared with a child
    child = get_context("fork").Process(target=_run_briefly, args=[work])
    child.start()
    try:
        yield
    finally:
        child.join()
    if child.exitcode:
        raise SystemExit(1)


def _run_briefly(work: Callable[[], None]) -> None:
    """Django's migrations make classes by the thousand: to look through all objects for
    unused ones so often takes a quarter of their time."""
    gc.set_threshold(100_000)
    work()


def _connect() -> None:
    try:
        with connection.cursor():
            pass
    except DatabaseError as exc:
        if connection.vendor == "postgresql":
            # Without the error's text, which may contain the password.
            raise ConfigurationError(
                "DATABASE_URL",
                "cannot reach PostgreSQL; start it, or correct the address.",
            ) from exc
        path = settings.DATABASES["default"]["NAME"]
        raise ConfigurationError(
            "DATABASE_URL", f"cannot use {path} ({exc}); name another file."
        ) from exc


def _check_redis() -> None:
    """Raise ConfigurationError if Redis refuses the address; log if it is unreachable.

    A refusal is permanent until staff correct the address. An outage may be temporary,
    and the engine copes with one at any time.
    """
    from redis import Redis
    from redis.exceptions import AuthenticationError, RedisError, ResponseError

    try:
        with Redis.from_url(
            settings.REDIS_URL, socket_timeout=3, socket_connect_timeout=3
        ) as client:
            client.ping()
    except (AuthenticationError, ResponseError) as exc:
        raise ConfigurationError(
            "REDIS_URL",
            "Redis refused the connection; correct the password or the database"
            " number.",
        ) from exc
    except (RedisError, OSError):
        logger.warning(
            "REDIS_URL: cannot reach Redis; until it can be reached, answers are read"
            " from the database once a second"
        )


@contextmanager
def _hold_lock() -> Iterator[None]:
    """Acquire the advisory lock that only one starting process has."""
    if connection.vendor != "postgresql":
        yield
        return
    # Not `pg_advisory_lock`: a statement that waits for it is an open transaction, and
    # `CREATE INDEX CONCURRENTLY` of the lock's owner waits for all open transactions.
    while not _try_lock():
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK_KEY])


def _try_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK_KEY])
        return bool(cursor.fetchone()[0])
