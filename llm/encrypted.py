"""A text column that is encrypted at rest, under its own key ring.

The ring is `settings.ENCRYPTION_KEYS`, newest first: the first encrypts, all decrypt.
It is not `SECRET_KEY`, so that either can be changed without the other.

A text is encrypted the moment it is assigned to the column's attribute, and what the
attribute holds from then on is a `Secret`: the encrypted form, which only `reveal()`
turns back. So no row in memory, no form's data, `repr`, dump or error page has the
plain text to show, and a row whose key is lost can still be listed and mended.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django import forms
from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.db import models
from django.db.models.functions import Cast
from django.db.models.query_utils import DeferredAttribute

MASK = "••••"

_PREFIX = "f1:"  # the form of what is stored, so that a later form can be told apart
_SHORTEST_SHOWN = 16  # characters; a hint would give away too much of a shorter text


class SecretUnavailable(Exception):
    """No key of ENCRYPTION_KEYS decrypts a stored secret; restore the ring or enter the
    secret again."""


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """What is stored, and the one way to its plain text.

    No `str`, so that joining, formatting and `json.dumps` cannot leak it by accident.
    """

    stored: str
    hint: str = field(default="", compare=False)  # only of one that was just entered

    @classmethod
    def of(cls, text: str) -> Secret:
        return cls(encrypt(text), hint_of(text))

    def reveal(self) -> str:
        """The plain text, for the one place that sends it. Raises SecretUnavailable."""
        return decrypt(self.stored)

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"


def hint_of(text: str) -> str:
    """Enough of a secret to recognise it by."""
    return f"{text[:3]}…{text[-4:]}" if len(text) >= _SHORTEST_SHOWN else "set"


# Anything long enough that begins as the big providers' keys do.
_LOOKS_LIKE_KEY = re.compile(r"\b(?:sk|pk|gsk|xai|key|AIza|Bearer )[-_\w.]{16,}")


def scrub(text: str, secrets: Collection[str] = ()) -> str:
    """`text` without these secrets and without what looks like a key."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _LOOKS_LIKE_KEY.sub(MASK, text)


# The ring


def ring() -> MultiFernet:
    return _ring(tuple(settings.ENCRYPTION_KEYS))


@cache
def _ring(keys: tuple[str, ...]) -> MultiFernet:
    if not keys:
        raise ImproperlyConfigured("ENCRYPTION_KEYS is empty.")
    return MultiFernet([Fernet(key) for key in keys])


def encrypt(text: str) -> str:
    return _PREFIX + ring().encrypt(text.encode()).decode()


def decrypt(stored: str) -> str:
    """Raises SecretUnavailable, never shows what is stored."""
    if not stored.startswith(_PREFIX):
        raise SecretUnavailable
    try:
        return ring().decrypt(stored.removeprefix(_PREFIX).encode()).decode()
    except InvalidToken as exc:
        raise SecretUnavailable from exc


def rotated(stored: str) -> str:
    """The same text under the newest key; `stored` itself where it already is.

    Raises SecretUnavailable.
    """
    decrypt(stored)
    token = stored.removeprefix(_PREFIX).encode()
    try:
        Fernet(settings.ENCRYPTION_KEYS[0]).decrypt(token)
    except InvalidToken:
        return _PREFIX + ring().rotate(token).decode()
    return stored


# The column and its form field


class SecretFormField(forms.CharField):
    """Write-only: it never shows what is stored, and left empty it changes nothing."""

    widget = forms.PasswordInput(
        render_value=False,
        attrs={"autocomplete": "new-password", "class": "vTextField"},
    )

    def clean(self, value: Any) -> Secret | None:
        text = super().clean(value)
        return Secret.of(text) if text else None

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(data)


class _SecretAttribute(DeferredAttribute):
    """Encrypts what is assigned."""

    field: EncryptedTextField

    def __set__(self, instance: models.Model, value: Any) -> None:
        if isinstance(value, str) and value:
            value = Secret.of(value)
        if isinstance(value, Secret) and value.hint and self.field.hint_field:
            setattr(instance, self.field.hint_field, value.hint)
        instance.__dict__[self.field.attname] = value


class EncryptedTextField(models.TextField):
    """Its attribute is a `Secret`, or "" or None where there is none.

    `hint_field` names the column that keeps what people may see of it. Validators are
    given the plain text of what was just entered.
    """

    descriptor_class = _SecretAttribute

    if TYPE_CHECKING:  # for the plugin of django-stubs
        _pyi_private_set_type: str | Secret  # type: ignore[assignment]
        _pyi_private_get_type: Secret  # type: ignore[assignment]
        db_index: bool  # the stubs leave it out

    def __init__(self, *args: Any, hint_field: str = "", **kwargs: Any) -> None:
        self.hint_field = hint_field
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        if self.hint_field:
            kwargs["hint_field"] = self.hint_field
        return name, path, args, kwargs

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        return [*super().check(**kwargs), *self._check_index(), *self._check_hint()]

    def _check_index(self) -> Iterator[checks.CheckMessage]:
        if self.unique or self.db_index:
            yield checks.Error(
                "An encrypted column cannot be unique or indexed: the same text is"
                " never stored the same way twice.",
                obj=self,
                id="llm.E001",
            )

    def _check_hint(self) -> Iterator[checks.CheckMessage]:
        if not self.hint_field:
            return
        names = [column.name for column in self.model._meta.concrete_fields]
        if self.hint_field not in names[: names.index(self.name)]:
            # Or a new row's empty hint is set after the secret has set it.
            yield checks.Error(
                f"The hint field {self.hint_field!r} must be declared before"
                f" {self.name!r}.",
                obj=self,
                id="llm.E004",
            )

    def to_python(self, value: Any) -> Any:
        return value if isinstance(value, Secret) else super().to_python(value)

    def run_validators(self, value: Any) -> None:
        if not isinstance(value, Secret):
            super().run_validators(value)
        elif value.hint:
            super().run_validators(value.reveal())

    def get_prep_value(self, value: Any) -> Any:
        if isinstance(value, Secret):
            return value.stored
        return encrypt(str(value)) if value else value

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return Secret(value) if value else value

    def value_to_string(self, obj: models.Model) -> str:
        """For dumps: nothing, so that a loaded dump says that the secret is missing."""
        return ""

    def get_lookup(self, lookup_name: str) -> Any:
        if lookup_name != "isnull":
            raise FieldError(f"{self.name!r} is encrypted and cannot be searched.")
        return super().get_lookup(lookup_name)

    def formfield(self, **kwargs: Any) -> Any:
        kwargs.pop("widget", None)
        return models.Field.formfield(self, form_class=SecretFormField, **kwargs)

    def save_form_data(self, instance: models.Model, data: Any) -> None:
        if data:
            setattr(instance, self.attname, data)


# All columns of the project


@dataclass(slots=True)
class Rotation:
    """What came of re-encrypting one column."""

    column: str  # "app.Model.field"
    rotated: int = 0
    already_newest: int = 0
    changed_meanwhile: int = 0
    unreadable: list[Any] = field(default_factory=list)  # primary keys


def encrypted_fields() -> list[EncryptedTextField]:
    return [
        column
        for model in apps.get_models()
        for column in model._meta.local_concrete_fields
        if isinstance(column, EncryptedTextField)
    ]


def stored_texts(column: EncryptedTextField) -> models.QuerySet[Any]:
    """The column's rows, with what is stored in it as `stored_text`."""
    rows = column.model._base_manager.annotate(
        stored_text=Cast(column.attname, models.TextField())
    )
    return rows.exclude(stored_text=None).exclude(stored_text="").order_by("pk")


def rotate(column: EncryptedTextField, *, batch_size: int = 500) -> Rotation:
    """Re-encrypt a column under the newest key, row by row.

    Each row is written on its own and only if nobody changed it meanwhile, so that this
    may run beside the server, be broken off and be started again.
    """
    done = Rotation(column.model._meta.label + "." + column.name)
    rows = stored_texts(column)
    batch = list(rows.values_list("pk", "stored_text")[:batch_size])
    while batch:
        for pk, stored in batch:
            _rotate_row(column, pk, stored, done)
        later = rows.filter(pk__gt=batch[-1][0])
        batch = list(later.values_list("pk", "stored_text")[:batch_size])
    return done


def _rotate_row(
    column: EncryptedTextField, pk: Any, stored: str, done: Rotation
) -> None:
    try:
        newest = rotated(stored)
    except SecretUnavailable:
        done.unreadable.append(pk)
        return
    if newest == stored:
        done.already_newest += 1
        return
    unchanged = stored_texts(column).filter(pk=pk, stored_text=stored)
    if unchanged.order_by().update(**{column.attname: Secret(newest)}):
        done.rotated += 1
    else:
        done.changed_meanwhile += 1
