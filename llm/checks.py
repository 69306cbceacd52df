"""System checks of the encryption keys and the stored secrets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from cryptography.fernet import Fernet
from django.apps import AppConfig
from django.core import checks
from django.db import DatabaseError, connections, transaction

from llm.conf import settings
from llm.db.encrypted_field import (
    EncryptedTextField,
    Secret,
    is_undecryptable,
    list_encrypted_fields,
    query_stored_texts,
)


def check_ring(
    app_configs: Sequence[AppConfig] | None, **kwargs: Any
) -> list[checks.CheckMessage]:
    if not settings.ENCRYPTION_KEYS:
        return [checks.Error("ENCRYPTION_KEYS is empty.", id="llm.E002")]
    try:
        for key in settings.ENCRYPTION_KEYS:
            Fernet(key)
    except ValueError:
        return [
            checks.Error(
                "A key of ENCRYPTION_KEYS is not 32 url-safe base64 bytes.",
                id="llm.E003",
            )
        ]
    return []


def check_secrets(
    app_configs: Sequence[AppConfig] | None,
    databases: Sequence[str] | None = None,
    **kwargs: Any,
) -> list[checks.CheckMessage]:
    """Check that the key ring decrypts stored secrets (`check --database default`)."""
    return [
        warning
        for alias in databases or ()
        for column in list_encrypted_fields()
        if _is_migrated(column, alias)
        for warning in _warnings(column, alias)
    ]


def _warnings(column: EncryptedTextField, alias: str) -> Iterator[checks.CheckMessage]:
    rows = (
        query_stored_texts(column).using(alias).values_list("secret_id", "stored_text")
    )
    stored = list(rows)
    name = f"{column.model._meta.label}.{column.name}"
    if lost := sum(is_undecryptable(column, row, text) for row, text in stored):
        yield checks.Warning(
            f"{name}: {lost} cannot be decrypted.",
            hint="Restore the missing key to ENCRYPTION_KEYS or enter them again.",
            id="llm.W001",
        )
    if unbound := sum(not Secret(text).is_bound for _row, text in stored):
        yield checks.Warning(
            f"{name}: {unbound} not bound to an address yet.",
            hint="Run `manage.py rotate_keys` when all processes run this release.",
            id="llm.W002",
        )


def _is_migrated(column: EncryptedTextField, alias: str) -> bool:
    table = column.model._meta.db_table
    try:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            # With the table's name: else SQLite reads a missing column as a text.
            columns = f'"{table}"."{column.column}", "{table}"."secret_id"'
            cursor.execute(f'SELECT {columns} FROM "{table}" LIMIT 0')
    except DatabaseError:
        return False
    return True
