from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cryptography.fernet import Fernet
from django.apps import AppConfig
from django.conf import settings
from django.core import checks
from django.db import connections

from llm.encrypted import (
    EncryptedTextField,
    SecretUnavailable,
    decrypt,
    encrypted_fields,
    stored_texts,
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
    """Whether the ring still decrypts what is stored (`check --database default`)."""
    return [
        checks.Warning(
            f"{lost} of {column.model._meta.label}.{column.name} cannot be decrypted.",
            hint="Restore the missing key to ENCRYPTION_KEYS or enter them again.",
            id="llm.W001",
        )
        for alias in databases or ()
        for column in encrypted_fields()
        if (lost := _lost(column, alias))
    ]


def _lost(column: EncryptedTextField, alias: str) -> int:
    """How many rows no key decrypts; none before the column's migration has run."""
    if not _is_migrated(column, alias):
        return 0
    texts = stored_texts(column).using(alias).values_list("stored_text", flat=True)
    return sum(not _decrypts(text) for text in texts)


def _is_migrated(column: EncryptedTextField, alias: str) -> bool:
    look, table = connections[alias].introspection, column.model._meta.db_table
    with connections[alias].cursor() as cursor:
        if table not in look.table_names(cursor):
            return False
        columns = look.get_table_description(cursor, table)
    return column.column in {found.name for found in columns}


def _decrypts(text: str) -> bool:
    try:
        decrypt(text)
    except SecretUnavailable:
        return False
    return True
