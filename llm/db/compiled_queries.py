"""Queries and inserts that are compiled to SQL once and run with changing values.

Building a query with the ORM takes ten times as long as the database takes to run it,
and every message runs the same queries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast

from django.db import connection, models
from django.db.models.query import get_related_populators

from llm.db import raw_sql
from llm.db.model_instances import (
    InstanceFactory,
    Write,
    column_converter,
    column_writer,
    use_instance_factory,
)
from llm.db.raw_sql import adapt_value
from llm.db.raw_sql import execute as execute

M = TypeVar("M", bound=models.Model)


class RegularUser:
    """Stand-in for a user who is no superuser, as the argument of `permitted`."""

    is_superuser = False

    def __init__(self, pk: int) -> None:
        self.pk = pk


class CompiledQuery(Generic[M]):
    """The query that `build_query` returns for `sample_values`: values of the right
    types, all different, by which the parameters are found in the compiled SQL.

    A value may be compared with `=`, `<` and the like, and is never None. Anything else
    that `build_query` reads, such as a setting or the time, is fixed.
    """

    def __init__(
        self, build_query: Callable[..., models.QuerySet[M, Any]], *sample_values: Any
    ) -> None:
        self._build_query = build_query
        self._sample_values = sample_values
        self._local = threading.local()

    def all(self, *values: Any) -> list[M]:
        compiled = self._compile()
        return [compiled.instance(row) for row in compiled.rows(values)]

    def first(self, *values: Any) -> M | None:
        return next(iter(self.all(*values)), None)

    def rows(self, *values: Any) -> list[Sequence[Any]]:
        """The rows of a `values_list` query."""
        return list(self._compile().rows(values))

    def _compile(self) -> _CompiledSQL:
        """The compiled query of this thread: it depends on the thread's connection."""
        compiled: _CompiledSQL | None = getattr(self._local, connection.vendor, None)
        if compiled is None:
            compiled = _CompiledSQL(
                self._build_query(*self._sample_values), self._sample_values
            )
            setattr(self._local, connection.vendor, compiled)
        return compiled


class _CompiledSQL:
    """A query in the SQL dialect of one connection, and the conversion of its rows.

    Like `django.db.models.query.ModelIterable`, which does this for each query again.
    """

    def __init__(
        self, query: models.QuerySet[Any, Any], sample_values: Sequence[Any]
    ) -> None:
        compiler = query.query.get_compiler(connection.alias)
        self._sql, self._values = compiler.as_sql()
        adapted_samples = [adapt_value(value) for value in sample_values]
        #: Pairs: index in the SQL parameters, index in the arguments of the call.
        self._parameter_positions = [
            (position, adapted_samples.index(value))
            for position, value in enumerate(self._values)
            if value in adapted_samples
        ]
        assert {number for _, number in self._parameter_positions} == set(
            range(len(sample_values))
        )
        selected = [column[0] for column in compiler.select]
        self._converters = [
            (position, column_converter(each, expression, compiler.connection))
            for position, (each, expression) in compiler.get_converters(
                selected
            ).items()
        ]
        self._alias = connection.alias
        if (class_info := compiler.klass_info) is not None:
            columns = class_info["select_fields"]
            self._own = slice(columns[0], columns[-1] + 1)
            self._names = [column.target.attname for column in selected[self._own]]
            self._factory = InstanceFactory(class_info["model"], self._names)
            # The stubs have the type of another version of Django.
            populators = cast(Any, get_related_populators)
            related = populators(class_info, compiler.select, connection.alias)
            self._related = [use_instance_factory(populator) for populator in related]

    def rows(self, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        parameters = list(self._values)
        for position, number in self._parameter_positions:
            parameters[position] = adapt_value(values[number])
        found = raw_sql.fetch_rows(self._sql, parameters)
        if not self._converters:
            return found
        return [self._convert(row) for row in found]

    def instance(self, row: Sequence[Any]) -> Any:
        instance = self._factory.from_db(self._alias, self._names, row[self._own])
        for populator in self._related:
            populator.populate(row, instance)
        return instance

    def _convert(self, row: Sequence[Any]) -> Sequence[Any]:
        columns = list(row)
        for position, convert in self._converters:
            if (value := columns[position]) is not None:
                columns[position] = convert(value)
        return columns


class CompiledInsert(Generic[M]):
    """Like `bulk_create`, without conflicts, batches and signals. The primary key is
    set if there is only one row.

    Values that are set are stored, even in `auto_now_add` columns.
    """

    def __init__(self, model: type[M]) -> None:
        self._model = model
        self._by_vendor: dict[str, tuple[str, Sequence[Write]]] = {}

    def __call__(self, *rows: M) -> None:
        self.prepare(*rows)()

    def prepare(self, *rows: M) -> Callable[[], None]:
        """Encode the rows now, and write them when the result is called: so no
        transaction has to wait for the encoding."""
        sql, columns = self._by_vendor.get(connection.vendor) or self._compile()
        values = [[write(row) for write in columns] for row in rows]
        if len(values) == 1:
            pk = str(self._model._meta.pk.column)
            fetch = raw_sql.prepare(f"{sql} RETURNING {pk}", values[0])
            return partial(self._write_one, fetch, rows[0])
        return partial(self._write, sql, values, rows)

    def _write_one(self, fetch: Callable[[], list[raw_sql.Row]], row: M) -> None:
        ((number,),) = fetch()
        setattr(row, self._model._meta.pk.attname, number)
        row._state.adding, row._state.db = False, connection.alias

    def _write(self, sql: str, values: list[list[Any]], rows: Sequence[M]) -> None:
        if values:
            raw_sql.execute_many(sql, values)
        for row in rows:
            row._state.adding, row._state.db = False, connection.alias

    def _compile(self) -> tuple[str, Sequence[Write]]:
        meta, quote = self._model._meta, connection.ops.quote_name
        fields = [
            f for f in meta.concrete_fields if not isinstance(f, models.AutoField)
        ]
        names = ", ".join(quote(str(field.column)) for field in fields)
        placeholders = ", ".join(["%s"] * len(fields))
        sql = f"INSERT INTO {quote(meta.db_table)} ({names}) VALUES ({placeholders})"
        columns = [column_writer(field, connection.vendor) for field in fields]
        compiled = self._by_vendor[connection.vendor] = sql, columns
        return compiled
