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

from llm import statements
from llm.instances import Maker, Write, converter, of_related, writer
from llm.statements import adapted
from llm.statements import execute as execute

M = TypeVar("M", bound=models.Model)


class Somebody:
    """Stand-in for a user who is no superuser, as the argument of `permitted`."""

    is_superuser = False

    def __init__(self, pk: int) -> None:
        self.pk = pk


class Prepared(Generic[M]):
    """The query that `build_query` returns for `sample_values`: values of the right
    types, all different, by which the parameters are found in the compiled SQL.

    A value may be compared with `=`, `<` and the like, and is never None. Anything else
    that `build_query` reads, such as a setting or the time, is fixed.
    """

    def __init__(
        self, make: Callable[..., models.QuerySet[M, Any]], *like: Any
    ) -> None:
        self._make = make
        self._like = like
        self._threads = threading.local()

    def all(self, *values: Any) -> list[M]:
        built = self._built()
        return [built.instance(row) for row in built.rows(values)]

    def first(self, *values: Any) -> M | None:
        return next(iter(self.all(*values)), None)

    def rows(self, *values: Any) -> list[Sequence[Any]]:
        """The rows of a `values_list` query."""
        return list(self._built().rows(values))

    def _built(self) -> _Built:
        """The compiled query of this thread: it depends on the thread's connection."""
        built: _Built | None = getattr(self._threads, connection.vendor, None)
        if built is None:
            built = _Built(self._make(*self._like), self._like)
            setattr(self._threads, connection.vendor, built)
        return built


class _Built:
    """A query in the SQL dialect of one connection, and the conversion of its rows.

    Like `django.db.models.query.ModelIterable`, which does this for each query again.
    """

    def __init__(self, query: models.QuerySet[Any, Any], like: Sequence[Any]) -> None:
        compiler = query.query.get_compiler(connection.alias)
        self._sql, self._values = compiler.as_sql()
        asked = [adapted(value) for value in like]
        #: Pairs: index in the SQL parameters, index in the arguments of the call.
        self._places = [
            (place, asked.index(value))
            for place, value in enumerate(self._values)
            if value in asked
        ]
        assert {number for _, number in self._places} == set(range(len(like)))
        selected = [column[0] for column in compiler.select]
        self._converters = [
            (place, converter(each, expression, compiler.connection))
            for place, (each, expression) in compiler.get_converters(selected).items()
        ]
        self._alias = connection.alias
        if (whole := compiler.klass_info) is not None:
            columns = whole["select_fields"]
            self._own = slice(columns[0], columns[-1] + 1)
            self._names = [column.target.attname for column in selected[self._own]]
            self._maker = Maker(whole["model"], self._names)
            # The stubs have the type of another version of Django.
            populators = cast(Any, get_related_populators)
            found = populators(whole, compiler.select, connection.alias)
            self._related = [of_related(populator) for populator in found]

    def rows(self, values: Sequence[Any]) -> Sequence[Sequence[Any]]:
        asked = list(self._values)
        for place, number in self._places:
            asked[place] = adapted(values[number])
        found = statements.rows(self._sql, asked)
        if not self._converters:
            return found
        return [self._converted(row) for row in found]

    def instance(self, row: Sequence[Any]) -> Any:
        found = self._maker.from_db(self._alias, self._names, row[self._own])
        for populator in self._related:
            populator.populate(row, found)
        return found

    def _converted(self, row: Sequence[Any]) -> Sequence[Any]:
        told = list(row)
        for place, convert in self._converters:
            if (value := told[place]) is not None:
                told[place] = convert(value)
        return told


class Insert(Generic[M]):
    """Like `bulk_create`, without conflicts, batches and signals. The primary key is
    set if there is only one row.

    Values that are set are stored, even in `auto_now_add` columns.
    """

    def __init__(self, model: type[M]) -> None:
        self._model = model
        self._of: dict[str, tuple[str, Sequence[Write]]] = {}

    def __call__(self, *rows: M) -> None:
        self.ready(*rows)()

    def ready(self, *rows: M) -> Callable[[], None]:
        """Encode the rows now, and write them when the result is called: so no
        transaction has to wait for the encoding."""
        sql, columns = self._of.get(connection.vendor) or self._built()
        values = [[write(row) for write in columns] for row in rows]
        if len(values) == 1:
            pk = str(self._model._meta.pk.column)
            returning = statements.ready(f"{sql} RETURNING {pk}", values[0])
            return partial(self._write_one, returning, rows[0])
        return partial(self._write, sql, values, rows)

    def _write_one(self, returning: Callable[[], list[statements.Row]], row: M) -> None:
        ((number,),) = returning()
        setattr(row, self._model._meta.pk.attname, number)
        row._state.adding, row._state.db = False, connection.alias

    def _write(self, sql: str, values: list[list[Any]], rows: Sequence[M]) -> None:
        if values:
            statements.execute_many(sql, values)
        for row in rows:
            row._state.adding, row._state.db = False, connection.alias

    def _built(self) -> tuple[str, Sequence[Write]]:
        meta, quote = self._model._meta, connection.ops.quote_name
        fields = [
            f for f in meta.concrete_fields if not isinstance(f, models.AutoField)
        ]
        names = ", ".join(quote(str(field.column)) for field in fields)
        places = ", ".join(["%s"] * len(fields))
        sql = f"INSERT INTO {quote(meta.db_table)} ({names}) VALUES ({places})"
        columns = [writer(field, connection.vendor) for field in fields]
        built = self._of[connection.vendor] = sql, columns
        return built
