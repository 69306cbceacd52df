"""A text column that is encrypted at rest, under its own key ring.

The ring is `settings.ENCRYPTION_KEYS`, newest first: the first encrypts, all decrypt.
It is not `SECRET_KEY`, so that either can be changed without the other. Whatever reads
the column as text (`dumpdata`, `repr`, an error page) sees a mask.
"""

from __future__ import annotations

from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.db import models

_PREFIX = "f1:"  # the form of what is stored, so that a later form can be told apart
MASK = "••••"


class SecretUnavailable(Exception):
    """No key of ENCRYPTION_KEYS decrypts a stored secret; restore the ring or re-enter
    it."""


class Secret(str):
    """A decrypted value. Use it as a str; its repr and its format say nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Secret('{MASK}')"

    def __format__(self, spec: str) -> str:
        return MASK

    def reveal(self) -> str:
        """The plain text, for the one place that sends it."""
        return str.__str__(self)


def ring() -> MultiFernet:
    if not settings.ENCRYPTION_KEYS:
        raise ImproperlyConfigured("ENCRYPTION_KEYS is empty.")
    return MultiFernet([Fernet(key) for key in settings.ENCRYPTION_KEYS])


def encrypt(text: str) -> str:
    return _PREFIX + ring().encrypt(text.encode()).decode()


def decrypt(stored: str) -> Secret:
    """Raises SecretUnavailable, never shows what is stored."""
    if not stored.startswith(_PREFIX):
        raise SecretUnavailable
    try:
        return Secret(ring().decrypt(stored.removeprefix(_PREFIX).encode()).decode())
    except InvalidToken as exc:
        raise SecretUnavailable from exc


class EncryptedTextField(models.TextField):
    def get_prep_value(self, value: Any) -> Any:
        if value in (None, ""):
            return value
        return encrypt(value.reveal() if isinstance(value, Secret) else str(value))

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return decrypt(value) if value else value

    def value_to_string(self, obj: models.Model) -> str:
        return MASK if self.value_from_object(obj) else ""

    def get_lookup(self, lookup_name: str) -> Any:
        if lookup_name != "isnull":
            raise FieldError(f"{self.name!r} is encrypted and cannot be searched.")
        return super().get_lookup(lookup_name)
