"""A text column that is encrypted at rest, with a key ring of its own.

The ring is `settings.ENCRYPTION_KEYS`, newest first: the first key encrypts, all keys
decrypt. It is separate from `SECRET_KEY`, so that either can be changed without the
other.

A text is encrypted when it is assigned to the column's attribute. From then on the
attribute is a `Secret`: the encrypted form, which only `reveal()` decrypts. So no row
in memory, form data, `repr`, dump or error page contains the plain text, and a row
whose key is lost can still be listed and repaired.

When the row is saved, a newly entered secret is encrypted in the form `f2:`
(`llm/db/bound_secrets.py`), for this row, this column and the origin that the row sends
it to. Saving never rebinds a secret that was loaded: a changed origin makes it
unavailable. The form `f1:` of earlier releases, which is bound to nothing, is read
until a rotation rewrites it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django import forms
from django.apps import apps
from django.core import checks
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.db import models
from django.db.models.functions import Cast

from llm.conf import settings
from llm.db import bound_secrets
from llm.db.bound_secrets import Binding, OriginChanged, SecretUnavailable
from llm.db.columns import list_columns

__all__ = ["OriginChanged", "SecretUnavailable"]

MASK = "••••"

_PREFIX = "f1:"  # of secrets that are not bound
_MIN_HINTED_LENGTH = 16  # characters; a hint would reveal too much of a shorter text


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A stored secret, which only `reveal` decrypts.

    It has no plain `str`, so that joining, formatting and `json.dumps` cannot leak it.
    """

    stored: str
    hint: str = field(default="", compare=False)  # only of a newly entered secret
    binding: Binding | None = None  # the current binding; None before it is saved

    @classmethod
    def of(cls, text: str) -> Secret:
        return cls(encrypt(text), hint_of(text))

    @classmethod
    def seal(cls, text: str, binding: Binding) -> Secret:
        """A newly entered secret whose binding is known already."""
        stored = bound_secrets.seal(text, binding, _keys())
        return cls(stored, hint_of(text), binding)

    @property
    def is_new(self) -> bool:
        """Newly entered and not bound to a row yet."""
        return bool(self.hint) and not self.is_bound

    @property
    def is_bound(self) -> bool:
        return self.stored.startswith(bound_secrets.PREFIX)

    def reveal(self) -> str:
        """Decrypt the secret. Call it only where the plain text is sent.

        Raises OriginChanged, SecretUnavailable.
        """
        if not self.is_bound:
            return decrypt(self.stored)
        if self.binding is None:
            raise SecretUnavailable
        return bound_secrets.unseal(self.stored, self.binding, _keys())

    def bind(self, binding: Binding) -> Secret:
        """Encrypt the same text for another binding. Raises SecretUnavailable."""
        stored = bound_secrets.seal(self.reveal(), binding, _keys())
        return Secret(stored, self.hint, binding)

    def reveal_for(self, origin: str) -> str:
        """The plain text if it was entered for `origin`, even if the row's origin
        changed.

        Raises SecretUnavailable.
        """
        if self.binding is None:
            return self.reveal()
        return replace(self, binding=replace(self.binding, origin=origin)).reveal()

    @property
    def origin(self) -> str | None:
        """The origin that it was entered for; None if it is not bound.

        Raises SecretUnavailable.
        """
        return bound_secrets.origin_of(self.stored) if self.is_bound else None

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"


def hint_of(text: str) -> str:
    """A few characters of a secret by which staff can recognise it."""
    return f"{text[:3]}…{text[-4:]}" if len(text) >= _MIN_HINTED_LENGTH else "set"


# Any long text that begins like the keys of the big providers.
_LOOKS_LIKE_KEY = re.compile(
    r"\b(?:sk|pk|gsk|xai|key|AIza|hf_|r8_|nvapi|ya29|eyJ|Bearer )[-_\w.]{16,}"
)


#: Characters. Hosts that need no key often get "x" or "none" as a key; a text in which
#: each letter x is masked cannot be read.
_MIN_SECRET = 2
_MIN_SECRET_PART = 8  # a shorter secret is masked only where it is a whole word


#: What may stand before a short secret: anything but a letter or digit, or an escape of
#: JSON or of a URL, which ends with one (`key:\nsecret`, `key%3Dsecret`).
_BEFORE = r"(?:(?<!\w)|(?<=\\[bfnrt])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2}))"


def scrub(text: str, secrets: Collection[str] = ()) -> str:
    """Remove these secrets, and everything that looks like a key, from `text`."""
    spellings = {each for secret in secrets for each in _spellings(secret)}
    for each in sorted(spellings, key=len, reverse=True):
        if text == each or len(each) >= _MIN_SECRET_PART:
            text = text.replace(each, MASK)
        elif len(each) >= _MIN_SECRET and each in text:
            text = re.sub(rf"{_BEFORE}{re.escape(each)}(?!\w)", MASK, text)
    return _LOOKS_LIKE_KEY.sub(MASK, text)


#: The scheme that a header may have before its secret. `Bearer` is no word of a title;
#: the others may be ("Basic assistant"), so what follows them must look like a secret:
#: a digit, a capital letter within, or more letters than a word has.
_SCHEME = re.compile(
    r"\A(?:bearer +|(?:basic|token|api[-_]?key|key|jwt|oauth|dpop|sso-key|ssws|bot) +"
    rf"(?=\S{{{_MIN_SECRET_PART},}}\Z)(?=\S*\d|\S+(?-i:[A-Z])|\S{{24}}))",
    re.IGNORECASE,
)


def _spellings(secret: str) -> set[str]:
    """The secret, which may be a header's value, as it is written in a text, in JSON
    and in a URL."""
    spellings: set[str] = set()
    for bare in filter(None, (secret, _SCHEME.sub("", secret))):
        escaped, in_url = json.dumps(bare)[1:-1], quote(bare, safe="")
        lower_case_escapes = re.sub("%..", lambda found: found[0].lower(), in_url)
        spellings |= {bare, escaped, escaped.replace("/", "\\/")}
        spellings |= {in_url, lower_case_escapes}
    return spellings


# The key ring


def key_ring() -> MultiFernet:
    return _build_key_ring(_keys())


def _keys() -> tuple[str, ...]:
    if not settings.ENCRYPTION_KEYS:
        raise ImproperlyConfigured("ENCRYPTION_KEYS is empty.")
    return tuple(settings.ENCRYPTION_KEYS)


@cache
def _build_key_ring(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def encrypt(text: str) -> str:
    """Encrypt without a binding: for values in memory or carried by a client."""
    return _PREFIX + key_ring().encrypt(text.encode()).decode()


def decrypt(stored: str) -> str:
    """Raises SecretUnavailable, without the stored text."""
    if not stored.startswith(_PREFIX):
        raise SecretUnavailable
    try:
        return key_ring().decrypt(stored.removeprefix(_PREFIX).encode()).decode()
    except InvalidToken as exc:
        raise SecretUnavailable from exc


def reencrypt(secret: Secret) -> Secret:
    """Encrypt `secret` with the newest key in the form `f2:`; return it unchanged if it
    already is. Its origin does not change.

    `secret` must have its binding. Raises SecretUnavailable.
    """
    assert secret.binding
    if not secret.is_bound:
        return secret.bind(secret.binding)
    if bound_secrets.is_under(secret.stored, secret.binding, _keys()[0]):
        return secret
    entered_for = bound_secrets.origin_of(secret.stored)
    binding = replace(secret.binding, origin=entered_for)
    return replace(secret, binding=binding).bind(binding)


# The column and its form field


class SecretFormField(forms.CharField):
    """Write-only: never shows the stored secret; an empty value changes nothing."""

    widget = forms.PasswordInput(
        render_value=False,
        attrs={"autocomplete": "new-password", "class": "vTextField"},
    )

    def clean(self, value: Any) -> Secret | None:
        text = super().clean(value)
        return Secret.of(text) if text else None

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(data)


def binding_of(column: EncryptedTextField, row: Any) -> Binding:
    """The binding of a secret that is entered into this row now."""
    qualified_name = f"{column.model._meta.db_table}.{column.column}"
    return Binding(row.secret_id, qualified_name, row.secret_origin(column.name))


class _SecretAttribute:
    """Encrypts assigned values and adds the binding to loaded ones."""

    def __init__(self, field: EncryptedTextField) -> None:
        self.field = field

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        if instance is None:
            return self
        name = self.field.attname
        if name not in instance.__dict__:  # the column was deferred
            instance.refresh_from_db(fields=[name])
        value = instance.__dict__[name]
        if isinstance(value, Secret) and value.is_bound:
            return replace(value, binding=binding_of(self.field, instance))
        return value

    def __set__(self, instance: models.Model, value: Any) -> None:
        if isinstance(value, str) and value:
            value = Secret.of(value)
        if isinstance(value, Secret) and value.is_new and self.field.hint_field:
            setattr(instance, self.field.hint_field, value.hint)
        instance.__dict__[self.field.attname] = value


class EncryptedTextField(models.TextField):
    """Its attribute is a `Secret`, or "" or None if there is none.

    `hint_field` names the column that stores the hint shown to staff. Validators get
    the plain text of newly entered secrets.
    """

    descriptor_class = _SecretAttribute

    if TYPE_CHECKING:  # for the plugin of django-stubs
        _pyi_private_set_type: str | Secret  # type: ignore[assignment]
        _pyi_private_get_type: Secret  # type: ignore[assignment]
        db_index: bool  # missing in the stubs

    def __init__(self, *args: Any, hint_field: str = "", **kwargs: Any) -> None:
        self.hint_field = hint_field
        super().__init__(*args, **kwargs)

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        if self.hint_field:
            kwargs["hint_field"] = self.hint_field
        return name, path, args, kwargs

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        return [
            *super().check(**kwargs),
            *self._check_index(),
            *self._check_hint(),
            *self._check_row(),
        ]

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
        names = [column.name for column in list_columns(self.model)]
        if self.hint_field not in names[: names.index(self.name)]:
            # Otherwise a new row's empty hint overwrites the one set with the secret.
            yield checks.Error(
                f"The hint field {self.hint_field!r} must be declared before"
                f" {self.name!r}.",
                obj=self,
                id="llm.E004",
            )

    def _check_row(self) -> Iterator[checks.CheckMessage]:
        if not hasattr(self.model, "secret_id"):
            yield checks.Error(
                "A model with an encrypted column must be a SecretRow.",
                obj=self,
                id="llm.E005",
            )

    def to_python(self, value: Any) -> Any:
        return value if isinstance(value, Secret) else super().to_python(value)

    def run_validators(self, value: Any) -> None:
        if not isinstance(value, Secret):
            super().run_validators(value)
        elif value.is_new:
            super().run_validators(value.reveal())

    def pre_save(self, model_instance: Any, add: bool) -> Any:
        value = model_instance.__dict__.get(self.attname)
        if isinstance(value, Secret) and value.is_new:
            value = value.bind(binding_of(self, model_instance))
            model_instance.__dict__[self.attname] = value
        return super().pre_save(model_instance, add)

    def get_prep_value(self, value: Any) -> Any:
        if isinstance(value, Secret) and not value.is_new:
            return value.stored
        if value:
            raise FieldError(
                f"{self.name!r} is encrypted for its row: assign it and save the row."
            )
        return value

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return Secret(value) if value else value

    def value_to_string(self, obj: models.Model) -> str:
        """Dumps contain "", so that after loading one the secret is visibly missing."""
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


# All encrypted columns of the project


@dataclass(slots=True)
class Rotation:
    """The result of re-encrypting one column."""

    column: str  # "app.Model.field"
    rotated: int = 0
    already_newest: int = 0
    changed_meanwhile: int = 0
    unreadable: list[Any] = field(default_factory=list)  # primary keys


def list_encrypted_fields() -> list[EncryptedTextField]:
    return [
        column
        for model in apps.get_models()
        for column in list_columns(model)
        if column.model is model and isinstance(column, EncryptedTextField)
    ]


def query_stored_texts(column: EncryptedTextField) -> models.QuerySet[Any]:
    """The rows with a secret in this column, with its stored form as `stored_text`."""
    rows = column.model._base_manager.annotate(
        stored_text=Cast(column.attname, models.TextField())
    )
    return rows.exclude(stored_text=None).exclude(stored_text="").order_by("pk")


def rotate(column: EncryptedTextField, *, batch_size: int = 500) -> Rotation:
    """Re-encrypt a column with the newest key in the newest form, row by row.

    Each row is written separately and only if its secret has not changed meanwhile. So
    this may run beside the server, and be interrupted and restarted.
    """
    done = Rotation(column.model._meta.label + "." + column.name)
    rows = query_stored_texts(column).select_related(*_single_relations(column.model))
    batch = list(rows[:batch_size])
    while batch:
        for row in batch:
            _rotate_row(column, row, done)
        batch = list(rows.filter(pk__gt=batch[-1].pk)[:batch_size])
    return done


def _single_relations(model: type[models.Model]) -> list[str]:
    """Relations to load with the row: its origin may be defined by a related row."""
    columns = list_columns(model)
    return [each.name for each in columns if each.is_relation and not each.null]


def _rotate_row(column: EncryptedTextField, row: Any, done: Rotation) -> None:
    stored = Secret(row.stored_text, binding=binding_of(column, row))
    try:
        newest = reencrypt(stored)
    except SecretUnavailable:
        done.unreadable.append(row.pk)
        return
    if newest is stored:
        done.already_newest += 1
    elif replace_stored(column, row.pk, stored, newest):
        done.rotated += 1
    else:
        done.changed_meanwhile += 1


def replace_stored(
    column: EncryptedTextField, pk: Any, old: Secret, new: Secret
) -> bool:
    """Replace a stored secret; False if it has changed meanwhile."""
    unchanged = query_stored_texts(column).filter(pk=pk, stored_text=old.stored)
    return bool(unchanged.order_by().update(**{column.attname: new}))


def is_undecryptable(column: EncryptedTextField, secret_id: Any, stored: str) -> bool:
    """Whether no key decrypts it for any origin."""
    try:
        if not (secret := Secret(stored)).is_bound:
            secret.reveal()
            return False
        qualified_name = f"{column.model._meta.db_table}.{column.column}"
        binding = Binding(secret_id, qualified_name, bound_secrets.origin_of(stored))
        bound_secrets.unseal(stored, binding, _keys())
    except SecretUnavailable:
        return True
    return False
