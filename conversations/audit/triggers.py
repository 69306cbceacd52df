"""Triggers by which the database refuses to change or delete rows of the audit log.

They allow three things: to link an event once, to make a text null, and to delete
what a checkpoint stands for. SQLite loses triggers when a migration rebuilds a table,
so they are installed after each `migrate` (`audit/apps.py`).
"""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

_EVENT, _TEXT = "audit_auditevent", "audit_audittext"
_CHECKPOINT = "audit_auditcheckpoint"
TABLES = (_EVENT, _TEXT, _CHECKPOINT)
_WRITTEN = (
    *("id", "at", "action", "channel", "outcome", "actor", "subject"),
    *("target_type", "target_id", "identity_digest", "details_digest"),
)
_TEXTS = ("identity", "identity_salt", "details", "details_salt")
_PRUNED = f"(SELECT COALESCE(MAX(position), 0) FROM {_CHECKPOINT})"
_TEXT_POSITION = f"(SELECT position FROM {_EVENT} WHERE id = OLD.event_id)"


def _is_distinct(vendor: str, column: str) -> str:
    word = "IS NOT" if vendor == "sqlite" else "IS DISTINCT FROM"
    return f"OLD.{column} {word} NEW.{column}"


def _conditions(vendor: str) -> dict[str, tuple[str, str, str]]:
    """By trigger: its table, its event and when it refuses."""
    changed = [_is_distinct(vendor, name) for name in _WRITTEN]
    texts = [
        f"({_is_distinct(vendor, name)} AND NEW.{name} IS NOT NULL)" for name in _TEXTS
    ]
    key = _is_distinct(vendor, "event_id")
    return {
        "audit_event_update": (
            _EVENT,
            "UPDATE",
            " OR ".join(["OLD.position IS NOT NULL", *changed]),
        ),
        "audit_event_delete": (
            _EVENT,
            "DELETE",
            f"OLD.position IS NULL OR OLD.position > {_PRUNED}",
        ),
        "audit_text_update": (_TEXT, "UPDATE", " OR ".join([key, *texts])),
        "audit_text_delete": (
            _TEXT,
            "DELETE",
            f"COALESCE({_TEXT_POSITION} > {_PRUNED}, TRUE)",
        ),
        "audit_checkpoint_update": (_CHECKPOINT, "UPDATE", "TRUE"),
        "audit_checkpoint_delete": (_CHECKPOINT, "DELETE", "TRUE"),
    }


def install(connection: BaseDatabaseWrapper) -> None:
    remove(connection)
    create = _create_sqlite if connection.vendor == "sqlite" else _create_postgresql
    with connection.cursor() as cursor:
        for name, (table, event, condition) in _conditions(connection.vendor).items():
            create(cursor, name, table, event, condition)


def remove(connection: BaseDatabaseWrapper) -> None:
    with connection.cursor() as cursor:
        for name, (table, _, _) in _conditions(connection.vendor).items():
            of_table = "" if connection.vendor == "sqlite" else f" ON {table}"
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}{of_table}")


def count_missing(connection: BaseDatabaseWrapper) -> int:
    """Triggers that should exist and do not."""
    names = list(_conditions(connection.vendor))
    marks = ", ".join(["%s"] * len(names))
    query = (
        "SELECT COUNT(*) FROM sqlite_master"
        f" WHERE type = 'trigger' AND name IN ({marks})"
        if connection.vendor == "sqlite"
        else "SELECT COUNT(DISTINCT tgname) FROM pg_trigger"
        f" WHERE NOT tgisinternal AND tgenabled <> 'D' AND tgname IN ({marks})"
    )
    with connection.cursor() as cursor:
        cursor.execute(query, names)
        return len(names) - int(cursor.fetchone()[0])


_REFUSAL = "rows of the audit log are append-only"


def _create_sqlite(
    cursor: Any, name: str, table: str, event: str, condition: str
) -> None:
    cursor.execute(
        f"CREATE TRIGGER {name} BEFORE {event} ON {table} WHEN {condition}"
        f" BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
    )


def _create_postgresql(
    cursor: Any, name: str, table: str, event: str, condition: str
) -> None:
    row = "OLD" if event == "DELETE" else "NEW"
    cursor.execute(
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$"
        f" BEGIN IF {condition} THEN RAISE EXCEPTION '{_REFUSAL}'; END IF;"
        f" RETURN {row}; END $$"
    )
    cursor.execute(
        f"CREATE TRIGGER {name} BEFORE {event} ON {table}"
        f" FOR EACH ROW EXECUTE FUNCTION {name}()"
    )
