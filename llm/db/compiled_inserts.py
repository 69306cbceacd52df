"""Inserts that are compiled to SQL once and run with changing rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection, connections, models

from llm.db.columns import find_primary_key, list_columns
from llm.db.statements import fetch_rows

M = TypeVar("M", bound=models.Model)

#: Fields whose values databases take as they are. No subclasses: one may encrypt.
_UNCHANGED = (
    models.BooleanField,
    models.CharField,
    models.FloatField,
    models.ForeignKey,
    models.PositiveBigIntegerField,
    models.PositiveIntegerField,
    models.PositiveSmallIntegerField,
    models.TextField,
)
_PLAIN = (str, int, float)


class CompiledInsert(Generic[M]):
    """Like `bulk_create`, without conflicts, batches and signals. The primary key is
    set if there is only one row.

    Values that are set are stored, even in `auto_now_add` columns.
    """

    def __init__(self, model: type[M]) -> None:
        self._model = model

    @cached_property
    def _fields(self) -> list[Any]:
        columns = list_columns(self._model)
        return [each for each in columns if not isinstance(each, models.AutoField)]

    @cached_property
    def _sql(self) -> str:
        table = self._model._meta.db_table
        names = ", ".join(f'"{field.column}"' for field in self._fields)
        places = ", ".join(["%s"] * len(self._fields))
        return f'INSERT INTO "{table}" ({names}) VALUES ({places})'

    @cached_property
    def _returning(self) -> str:
        return f'{self._sql} RETURNING "{find_primary_key(self._model).column}"'

    def __call__(self, *rows: M) -> None:
        self.prepare(*rows)()

    def prepare(self, *rows: M) -> Callable[[], None]:
        """Encode the rows now, and write them when the result is called: so no
        transaction has to wait for the encoding."""
        database = connections[DEFAULT_DB_ALIAS]
        values = [
            [_value(field, row, database) for field in self._fields] for row in rows
        ]
        if len(rows) != 1:
            return partial(self._write_many, rows, values)
        if connection.vendor != "postgresql":
            return partial(self._write_one, rows[0], self._returning, values[0])
        # With a value of many megabytes, composing the statement takes seconds.
        with connection.cursor() as cursor:
            composed = cursor.mogrify(self._returning, values[0])
        return partial(self._write_one, rows[0], composed, None)

    def _write_one(self, row: M, sql: str, values: Sequence[Any] | None) -> None:
        ((row.pk,),) = fetch_rows(sql, values)
        row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS

    def _write_many(self, rows: Sequence[M], values: list[list[Any]]) -> None:
        if values:
            with connection.cursor() as cursor:
                cursor.executemany(self._sql, values)
        for row in rows:
            row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


def _value(field: models.Field[Any, Any], row: models.Model, database: Any) -> Any:
    """The column's value as the database takes it."""
    value = getattr(row, field.attname)
    if value is None:
        value = field.pre_save(row, add=True)  # the time of `auto_now_add`
    if value is None or (type(field) in _UNCHANGED and isinstance(value, _PLAIN)):
        return value
    return field.get_db_prep_save(value, database)
