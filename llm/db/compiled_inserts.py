"""Inserts that are compiled to SQL once and run with changing rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections, models

from llm.db.columns import find_primary_key, list_columns
from llm.db.statements import fetch_rows, prepared_cursor

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

Statement = tuple[str, Sequence[Any]]  # and its values
#: Condition of the statements that `execute_after` executes after the first one.
IS_CHANGED = "EXISTS (SELECT FROM changed)"


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
        placeholders = ", ".join(["%s"] * len(self._fields))
        return f'INSERT INTO "{table}" ({names}) VALUES ({placeholders})'

    @cached_property
    def _returning(self) -> str:
        return f'{self._sql} RETURNING "{find_primary_key(self._model).column}"'

    @cached_property
    def _dependent(self) -> str:
        values, placeholders = self._sql.rsplit("VALUES", 1)
        return f"{values}SELECT {placeholders.strip(' ()')} WHERE {IS_CHANGED}"

    def __call__(self, *rows: M) -> None:
        self._write(rows, [self._encode(row) for row in rows])

    def prepare(self, *rows: M) -> Callable[[], None]:
        """Encode the rows now, and write them when the result is called: so no
        transaction has to wait for the encoding."""
        return partial(self._write, rows, [self._encode(row) for row in rows])

    def statement(self, row: M) -> Statement:
        """The insert of one row, which returns its primary key."""
        return self._returning, self._encode(row)

    def dependent_statement(self, row: M) -> Statement:
        """The insert of one row, for `execute_after`."""
        return self._dependent, self._encode(row)

    def _encode(self, row: M) -> list[Any]:
        database = connections[DEFAULT_DB_ALIAS]
        return [_value(field, row, database) for field in self._fields]

    def _write(self, rows: Sequence[M], values: list[list[Any]]) -> None:
        if len(rows) == 1:
            ((rows[0].pk,),) = fetch_rows(self._returning, values[0])
        elif rows:
            with prepared_cursor() as cursor:
                cursor.executemany(self._sql, values)
        for row in rows:
            row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


def insert_together(
    inserts: Sequence[tuple[CompiledInsert[Any], models.Model]],
    change: Statement | None,
    call: Statement | None = None,
) -> None:
    """Insert rows and execute `change` in one statement, which saves round trips.
    `call` is an expression to evaluate beside them.

    For PostgreSQL: SQLite has no `INSERT` within `WITH`. No part sees what another
    writes; foreign keys among the rows are checked afterwards.
    """
    statements = [insert.statement(row) for insert, row in inserts]
    if change is not None:
        statements.append(change)
    parts = ", ".join(f"s{n} AS ({sql})" for n, (sql, _) in enumerate(statements))
    keys = [f"(SELECT * FROM s{n})" for n in range(len(inserts))]
    values = [value for _, values in statements for value in values]
    if call is not None:
        keys.append(call[0])
        values += call[1]
    (found,) = fetch_rows(f"WITH {parts} SELECT {', '.join(keys)}", values)
    for (_, row), key in zip(inserts, found, strict=False):
        row.pk = key
        row._state.adding, row._state.db = False, DEFAULT_DB_ALIAS


def execute_after(
    change: Statement, dependent: Sequence[Statement]
) -> list[tuple[Any, ...]]:
    """Execute `change`, which returns rows, and the `dependent` statements, whose
    condition is `IS_CHANGED`, in one statement. Returns the rows of `change`: without
    one, nothing is written.

    For PostgreSQL, as `insert_together`. The dependent ones see the rows of before.
    """
    sql, values = change[0], list(change[1])
    parts = [f"changed AS ({sql})"]
    for number, (text, more) in enumerate(dependent):
        parts.append(f"s{number} AS ({text})")
        values += more
    return fetch_rows(f"WITH {', '.join(parts)} SELECT * FROM changed", values)


def _value(field: models.Field[Any, Any], row: models.Model, database: Any) -> Any:
    """The column's value as the database takes it."""
    value = getattr(row, field.attname)
    if value is None:
        value = field.pre_save(row, add=True)  # the time of `auto_now_add`
    if value is None or (type(field) in _UNCHANGED and isinstance(value, _PLAIN)):
        return value
    return field.get_db_prep_save(value, database)
