"""Rows with stored secrets: a random identifier, and the origin of each secret."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from uuid import uuid4

from django.db import models
from django.utils.translation import gettext_lazy as _

from llm.db.bound_secrets import OriginChanged, SecretUnavailable
from llm.db.columns import list_columns
from llm.db.encrypted_field import EncryptedTextField, Secret, binding_of


class RandomUUID(models.Func):
    """A random UUID made by the database, for rows of processes of older releases."""

    template = "%(function)s()"
    function = "gen_random_uuid"
    output_field = models.UUIDField()

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = "lower(hex(randomblob(16)))"
        return self.as_sql(compiler, connection, template=template, **context)


class SecretRow(models.Model):
    """A row whose secrets are bound to it and to the origin that they are sent to."""

    secret_id = models.UUIDField(
        default=uuid4, db_default=RandomUUID(), unique=True, editable=False
    )

    class Meta:
        abstract = True

    def save(self, *args: Any, update_fields: Any = None, **kwargs: Any) -> None:
        rebound = [] if self._state.adding else self._bind_older_secrets()
        if update_fields is not None:
            update_fields = {*update_fields, *rebound}
        super().save(*args, update_fields=update_fields, **kwargs)

    def secret_origin(self, column: str) -> str:
        """The origin that this column's secret is sent to now."""
        raise NotImplementedError

    def _bind_older_secrets(self) -> list[str]:
        """Bind secrets of the form `f1:` to the origin that the row had until now: they
        are bound to no origin, and would otherwise follow the row to another one.
        Returns the columns to write."""
        older = [
            column
            for column in list_encrypted_columns(type(self))
            if is_unbound(self.__dict__.get(column.attname))
        ]
        before = older and type(self)._base_manager.filter(pk=self.pk).first()
        rebound = []
        for column in older if before else ():
            # Another process may have bound it.
            secret = before.__dict__[column.attname]
            binding = binding_of(column, before)
            if is_unbound(secret) and binding != binding_of(column, self):
                with suppress(SecretUnavailable):  # an unreadable secret stays as it is
                    secret = secret.bind(binding)
                    rebound.append(column.name)
            self.__dict__[column.attname] = secret
        return rebound


def why_not_sent(secret: Secret | None, origin: str) -> str:
    """Why the secret is not sent to this origin, for staff; "" if it is sent."""
    try:
        if secret:
            secret.reveal()
    except OriginChanged as exc:
        text = _(
            "Not sent: it was entered for %(old)s, and the address is now %(new)s."
            " Enter it again to send it to the new address."
        )
        return str(text) % {"old": exc.origin, "new": origin}
    except SecretUnavailable:
        return str(
            _(
                "Not sent: it cannot be decrypted. Restore ENCRYPTION_KEYS or enter it"
                " again."
            )
        )
    return ""


def list_encrypted_columns(model: type[models.Model]) -> list[EncryptedTextField]:
    return [
        column
        for column in list_columns(model)
        if isinstance(column, EncryptedTextField)
    ]


def is_unbound(value: Any) -> bool:
    """Whether it is a stored secret of the form `f1:`."""
    return isinstance(value, Secret) and not value.is_new and not value.is_bound
