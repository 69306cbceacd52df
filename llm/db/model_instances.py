"""Conversion of rows to model instances and back, at a fifth of the ORM's cost.

`Model.__init__` accepts arguments in any form and sets each attribute separately. Here
the columns of a row are known, so they become the instance's attributes in one step. A
model that customises instance creation is left to Django.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.db import connection, models
from django.db.models.base import ModelState
from django.db.models.expressions import Col
from django.db.models.fields.related_descriptors import ForeignKeyDeferredAttribute
from django.db.models.query_utils import DeferredAttribute
from django.db.models.signals import post_init, pre_init

from llm.db.raw_sql import adapt_value

Convert = Callable[[Any], Any]
#: Reads a column's value from an instance, as the database takes it.
Write = Callable[[Any], Any]
_PLAIN_DESCRIPTORS = (DeferredAttribute, ForeignKeyDeferredAttribute)


class InstanceFactory:
    """Creates instances of one class from rows with the columns `names`."""

    def __init__(self, model: type[models.Model], names: Sequence[str]) -> None:
        self._model = model
        self._names = list(names)
        self._is_plain = _can_set_attributes(model, names)

    def from_db(self, alias: str, names: Sequence[str], values: Sequence[Any]) -> Any:
        """Like the model's own `from_db`."""
        if not self._is_plain:
            return self._model.from_db(alias, names, values)
        instance = self._model.__new__(self._model)
        attributes = instance.__dict__
        state = attributes["_state"] = ModelState()
        state.adding, state.db = False, alias
        attributes.update(zip(self._names, values, strict=True))
        return instance


def _can_set_attributes(model: type[models.Model], names: Sequence[str]) -> bool:
    """True if creating an instance only sets its attributes."""
    model_from_db = getattr(model.from_db, "__func__", None)
    django_from_db = models.Model.from_db.__func__  # type: ignore[attr-defined]
    return (
        model.__init__ is models.Model.__init__
        and model_from_db is django_from_db
        and not pre_init.has_listeners(model)
        and not post_init.has_listeners(model)
        and all(type(_attribute(model, name)) in _PLAIN_DESCRIPTORS for name in names)
    )


def _attribute(model: type[models.Model], name: str) -> Any:
    return next((vars(c)[name] for c in model.__mro__ if name in vars(c)), None)


def use_instance_factory(populator: Any) -> Any:
    """Make Django's populator for `select_related` use `InstanceFactory`."""
    populator.model_cls = InstanceFactory(populator.model_cls, populator.init_list)
    for inner in populator.related_populators:
        use_instance_factory(inner)
    return populator


def column_converter(
    converters: Sequence[Any], expression: Any, connection: Any
) -> Convert:
    """Combine Django's converters of a column, for a value that is not None."""
    if len(converters) == 1 and _is_json(converters[0], expression):
        return _load_json

    def convert(value: Any) -> Any:
        for each in converters:
            value = each(value, expression, connection)
        return value

    return convert


def _is_json(convert: Any, expression: Any) -> bool:
    field = getattr(convert, "__self__", None)
    own = getattr(convert, "__func__", None) is models.JSONField.from_db_value
    return own and isinstance(expression, Col) and getattr(field, "decoder", 1) is None


def _load_json(text: Any) -> Any:
    if text == "{}":
        return {}
    return [] if text == "[]" else json.loads(text)


# To the database


def column_writer(field: models.Field[Any, Any], vendor: str) -> Write:
    """Do what Django's `pre_save` and `get_db_prep_save` do for a column; most values
    need no change."""
    name, unchanged = field.attname, _native_types(field, vendor)
    is_json = type(field) is models.JSONField and vendor == "sqlite"
    is_datetime = type(field) is models.DateTimeField
    is_foreign_key = type(field) is models.ForeignKey  # a foreign key stores "" as NULL
    stays_none = _stores_none(field)

    def write(row: Any) -> Any:
        value = getattr(row, name)
        if type(value) in unchanged and (value or not is_foreign_key):
            return value
        if value is None:
            if stays_none:
                return None
            value = field.pre_save(row, add=True)
        if (
            str in unchanged
            and isinstance(value, str)
            and (value or not is_foreign_key)
        ):
            return str(value)  # a member of TextChoices
        if is_json and not value and type(value) in (dict, list):
            return "[]" if type(value) is list else "{}"
        if is_datetime and isinstance(value, datetime) and value.tzinfo:
            return adapt_value(value)
        return field.get_db_prep_save(value, connection)

    return write


def _stores_none(field: Any) -> bool:
    """Whether None is stored as NULL, without a default set on save."""
    is_django_field = type(field).__module__.startswith("django.")
    has_auto_time = any(
        getattr(field, name, False) for name in ("auto_now", "auto_now_add")
    )
    return is_django_field and not has_auto_time


def _native_types(field: Any, vendor: str) -> frozenset[type]:
    """Types whose values the database takes unchanged."""
    if type(field) is models.ForeignKey:
        return _native_types(field.target_field, vendor)
    if type(field) in (models.CharField, models.TextField):
        return frozenset({str})
    sqlite_type = _SQLITE_TYPES.get(type(field)) if vendor == "sqlite" else None
    return frozenset({sqlite_type} if sqlite_type else ())


_SQLITE_TYPES: dict[Any, type] = {
    **dict.fromkeys(
        (
            models.BigAutoField,
            models.BigIntegerField,
            models.IntegerField,
            models.PositiveIntegerField,
            models.PositiveSmallIntegerField,
        ),
        int,
    ),
    models.BooleanField: bool,
    models.FloatField: float,
}
