"""The mark of a restore whose process was killed: until another restore succeeds, no
start takes what the killed one left for a whole server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.db import connection

from project.backups import postgresql
from project.environment.configuration_error import ConfigurationError
from project.startup.data_folder import create_private

_MARK = "restore-unfinished"  # file in the data folder


@contextmanager
def marking() -> Iterator[None]:
    """Write a mark file while the body replaces files and database. If the process is
    killed, the mark stays until a body succeeds: one that fails brings back what the
    killed one had left."""
    was_marked = _mark().exists()
    create_private(_mark())
    try:
        yield
    except BaseException:
        if not was_marked:
            _mark().unlink(missing_ok=True)
        raise
    _mark().unlink(missing_ok=True)


def describe_unfinished() -> str:
    """What is wrong and what to do; "" if no restore was interrupted."""
    if connection.vendor == "postgresql" and postgresql.are_set_aside():
        return (
            "a restore was interrupted: the former tables are in the schema"
            f" {postgresql.REPLACED}. Run `restore --replace` again, or put them back"
            f" by: {'; '.join(postgresql.PUT_BACK)};"
        )
    if _mark().exists():
        return (
            "a restore was interrupted, and the data folder has files of two servers."
            " Run `restore --replace` again; the former files are in folders"
            f" replaced-… Delete {_mark()} to start nevertheless."
        )
    return ""


def refuse_unfinished() -> None:
    """Raises ConfigurationError where a start would take a server that is restored in
    part, or an empty database, for its own.

    If PostgreSQL has tables while others are set aside, the restore had finished but
    for dropping those, or a new server was begun: it starts, and `doctor` reports it.
    """
    is_postgresql = connection.vendor == "postgresql"
    is_started = is_postgresql and not _mark().exists() and postgresql.has_tables()
    if not is_started and (text := describe_unfinished()):
        variable = "DATABASE_URL" if is_postgresql else "PARLEY_DATA"
        raise ConfigurationError(variable, text)


def _mark() -> Path:
    path: Path = settings.DATA / _MARK
    return path
