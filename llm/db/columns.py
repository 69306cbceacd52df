"""The columns of a model, and how the values of a row are read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from functools import cache, partial
from operator import methodcaller
from typing import Any

from django.db import connection, models


@cache
def list_columns(model: type[models.Model]) -> tuple[Any, ...]:
    """The fields with a column, in the order of their declaration."""
    fields: Any = model._meta.get_fields()
    return tuple(each for each in fields if each.concrete and not each.many_to_many)


def find_primary_key(model: type[models.Model]) -> Any:
    return next(each for each in list_columns(model) if each.primary_key)


def find_converter(field: Any) -> Callable[[Any], Any] | None:
    """Converts a column's value, if it is not None, to that of the field."""
    if (from_db_value := getattr(field, "from_db_value", None)) is not None:
        return partial(from_db_value, expression=None, connection=connection)
    if connection.vendor == "sqlite" and isinstance(field, models.DateTimeField):
        return methodcaller("replace", tzinfo=UTC)
    is_text = isinstance(field, models.DecimalField | models.UUIDField)
    return field.to_python if is_text and connection.vendor == "sqlite" else None
