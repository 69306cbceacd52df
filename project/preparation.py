"""What a process makes sure of before it serves or works."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import get_context
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from project.environment import ConfigurationError
from project.files import InUse, lock_folder
from project.first_start import Outcome, first_start
from tools.models import Tool

logger = logging.getLogger(__name__)

_PREPARING = 7_262_317  # the number of PostgreSQL's lock; any that nobody else uses
_PAUSE = 0.1  # seconds


def alone() -> AbstractContextManager[Any]:
    """The lock on the data folder, where there may be one process only."""
    if settings.REDIS_URL:
        return nullcontext()
    try:
        return lock_folder(settings.DATA)
    except InUse as exc:
        raise ConfigurationError(
            "PARLEY_DATA", f"{exc}; stop that or name another folder."
        ) from exc


def prepare_database() -> None:
    """What a command needs that is run before the server was ever started, or before
    the new version was. Raises ConfigurationError, while another process runs too."""
    _connect()
    if has_migrations():
        with alone():
            _apart(migrate)
            Tool.objects.sync()


def prepare() -> Outcome:
    """Migrations, then the first start. Of processes that start at once, one does it
    and the others wait."""
    _connect()
    if settings.REDIS_URL:
        _greet_redis()
    _apart(migrate)
    with _one_after_another():
        return first_start()


def migrate() -> None:
    """`migrate`, which takes a second, only where there is something to do."""
    with _one_after_another():
        if has_migrations():
            call_command("migrate", verbosity=0, interactive=False)


def has_migrations() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def _apart(work: Callable[[], None]) -> None:
    """In a child, with which goes what it takes: migrations leave behind 20 MB, which a
    server would keep for good. What it fails with, it tells itself."""
    connection.close()  # a connection cannot be shared with a child
    child = get_context("fork").Process(target=work)
    child.start()
    child.join()
    if child.exitcode:
        raise SystemExit(1)


def _connect() -> None:
    try:
        connection.ensure_connection()
    except DatabaseError as exc:
        if connection.vendor == "postgresql":
            # Not the text: it may repeat the address with its password.
            raise ConfigurationError(
                "DATABASE_URL",
                "cannot reach PostgreSQL there; start it, or mend the address.",
            ) from exc
        path = settings.DATABASES["default"]["NAME"]
        raise ConfigurationError(
            "DATABASE_URL", f"cannot use {path} ({exc}); name another file."
        ) from exc


def _greet_redis() -> None:
    """One that refuses us will go on with that, and is for a person to mend. One that
    is away may come back, as it may while we run."""
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
            "Redis refuses us there; mend the password, or the database's number.",
        ) from exc
    except (RedisError, OSError):
        logger.warning(
            "REDIS_URL: cannot reach Redis there; until it can be reached, answers"
            " are told from the database, once a second"
        )


@contextmanager
def _one_after_another() -> Iterator[None]:
    if connection.vendor != "postgresql":
        yield
        return
    # Asked for again and again: a statement that waits is a transaction under way, and
    # for the end of each such one `CREATE INDEX CONCURRENTLY` waits.
    while not _locked():
        time.sleep(_PAUSE)
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_PREPARING])


def _locked() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [_PREPARING])
        return bool(cursor.fetchone()[0])
