"""Queries that are compiled to SQL once and run with changing values.

The ORM takes ten times as long to build a query as the database takes to run it, and
every message runs the same dozen (decision 19). They are written as querysets, so the
SQL is Django's, for SQLite and for PostgreSQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, chain, islice
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection, models

from llm.db.columns import find_converter, find_primary_key, list_columns
from llm.db.statements import adapt_value, fetch_rows

M = TypeVar("M", bound=models.Model)
Row = Sequence[Any]
#: SQL, its parameters for sample values, and pairs: the index of a parameter, the index
#: of its value in the arguments of a call.
_Compiled = tuple[str, Row, list[tuple[int, int]]]


MAX_KNOWN = 64  # results of one query that are shared: of users of different groups
_TABLE = re.compile(r'([\w"]+)\."\w+" AS ')  # of a column


class _Captured(Exception):
    """Ends a query before it is sent to the database."""


def _capture_sql(query: models.QuerySet[Any, Any]) -> tuple[str, Row]:
    """The SQL of a query and its parameters. The query is not executed."""
    captured: list[tuple[str, Row]] = []

    def capture(_: Any, sql: str, parameters: Row, *__: Any) -> Any:
        captured.append((sql, parameters))
        raise _Captured

    with suppress(_Captured), connection.execute_wrapper(capture):
        list(query)
    return captured[0]


@lru_cache
def _split_select(sql: str, keys: tuple[str, ...]) -> tuple[str, str, str, str]:
    """The columns of a query without annotations, the versions of the rows of all its
    tables, its FROM with what belongs to it, and its order. `keys`: the column of each
    table's primary key, because VACUUM FULL may swap the places of two rows."""
    columns, start, rest = sql.removeprefix("SELECT ").partition(" FROM ")
    origin, order_by, order = rest.partition(" ORDER BY ")
    tables = dict.fromkeys(_TABLE.findall(columns))
    versions = ", ".join(
        f'{table}."{key}", {table}.xmin, {table}.ctid'
        for table, key in zip(tables, keys, strict=True)
    )
    return columns, versions, start.lstrip() + origin, order_by + order


class CompiledRows:
    """The `values_list` query that `build_query` returns for `sample_values`: values of
    the right types, all different, by which its parameters are found in the SQL.

    A value may be compared with `=`, `<` and the like, and is never None. Anything else
    that `build_query` reads, such as a setting or the time, is fixed.
    """

    def __init__(
        self, build_query: Callable[..., models.QuerySet[Any, Any]], *sample_values: Any
    ) -> None:
        self._build_query, self._sample_values = build_query, sample_values
        self._by_vendor: dict[str, _Compiled] = {}

    def rows(self, *values: Any) -> list[tuple[Any, ...]]:
        """The rows as the database returns them."""
        return fetch_rows(*self.statement(*values))

    def statement(self, *values: Any) -> tuple[str, list[Any]]:
        """The SQL and its parameters."""
        compiled = self._by_vendor.get(connection.vendor) or self._compile()
        sql, parameters, positions = compiled[0], list(compiled[1]), compiled[2]
        for position, number in positions:
            parameters[position] = adapt_value(values[number])
        return sql, parameters

    def _compile(self) -> _Compiled:
        sql, parameters = _capture_sql(self._query())
        samples = [adapt_value(value) for value in self._sample_values]
        pairs = [
            (n, samples.index(v)) for n, v in enumerate(parameters) if v in samples
        ]
        assert {number for _, number in pairs} == set(range(len(samples)))
        compiled = self._by_vendor[connection.vendor] = sql, parameters, pairs
        return compiled

    def _query(self) -> models.QuerySet[Any, Any]:
        return self._build_query(*self._sample_values)


class CompiledQuery(CompiledRows, Generic[M]):
    """A compiled query for instances with all or these `columns`, and with the rows at
    the paths `related`, as for `select_related`. The values of the annotations `beside`
    end each row."""

    def __init__(
        self,
        build_query: Callable[..., models.QuerySet[M, Any]],
        *sample_values: Any,
        columns: Sequence[str] = (),
        related: Sequence[str] = (),
        beside: Sequence[str] = (),
    ) -> None:
        super().__init__(build_query, *sample_values)
        self._columns, self._related, self._beside = columns, related, beside
        self._parts: list[_Part] = []
        #: By the rows or their versions.
        self._known: dict[Hashable, Sequence[M]] = {}

    def all(self, *values: Any) -> list[M]:
        return [self.create_instance(row) for row in self.rows(*values)]

    def first(self, *values: Any) -> M | None:
        return next(iter(self.all(*values)), None)

    def all_shared(self, *values: Any) -> Sequence[M]:
        """As `all`, for rows that seldom change. Rows that have not changed give the
        instances of the last time, which nobody may change.

        PostgreSQL sends only the versions of the rows at first: the transaction that
        wrote each, and its place.
        https://www.postgresql.org/docs/15/ddl-system-columns.html
        """
        sql, parameters = self.statement(*values)
        if connection.vendor != "postgresql":
            rows = fetch_rows(sql, parameters)
            return self._create_shared(tuple(rows), rows)
        keys = tuple(part.key_column for part in self._parts)
        columns, versions, origin, order = _split_select(sql, keys)
        key = frozenset(fetch_rows(f"SELECT {versions} {origin}", parameters))
        if (known := self._known.get(key)) is not None:
            return known
        both = f"SELECT {columns}, {versions} {origin}{order}"
        size = sum(len(part.names) for part in self._parts)
        rows = fetch_rows(both, parameters)
        key = frozenset(row[size:] for row in rows)
        return self._create_shared(key, [row[:size] for row in rows])

    def _create_shared(self, key: Hashable, rows: Sequence[Row]) -> Sequence[M]:
        if (known := self._known.get(key)) is None:
            if len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]  # the oldest
            known = self._known[key] = [self.create_instance(row) for row in rows]
        return known

    def _query(self) -> models.QuerySet[Any, Any]:
        query = super()._query()
        paths = (accumulate(p.split("__"), "{}__{}".format) for p in self._related)
        parts = [_Part(query.model, p) for p in dict.fromkeys(chain(*paths))]
        self._parts = [_Part(query.model, "", self._columns), *parts]
        names = [name for part in self._parts for name in part.paths]
        return query.values_list(*names, *self._beside)

    def create_instance(self, row: Row) -> M:
        """The instance of a row, with the related ones."""
        columns, found = iter(row), dict[str, Any]()
        for part in self._parts:
            instance = part.create([*islice(columns, len(part.names))])
            found[part.path] = instance
            if part.path and (parent := found[part.parent]) is not None:
                part.link(parent, instance)
        found_instance: M = found[""]
        return found_instance


class _Part:
    """The columns of a result row from which one model instance is made.

    `path` leads to the instance as in `select_related`; "" is the queried model itself.
    """

    def __init__(self, model: Any, path: str, columns: Sequence[str] = ()) -> None:
        self.path, (self.parent, _, self.name) = path, path.rpartition("__")
        for name in path.split("__") if path else ():
            self.relation = model._meta.get_field(name)
            model = self.relation.related_model
        fields = [f for f in list_columns(model) if not columns or f.attname in columns]
        self.model, self.names = model, [field.attname for field in fields]
        self.paths = [f"{path}__{name}" if path else name for name in self.names]
        primary_key = find_primary_key(model)
        self.key_column = primary_key.column
        self.key = self.names.index(primary_key.attname)
        converters = enumerate(map(find_converter, fields))
        self.converters = [(number, each) for number, each in converters if each]

    def create(self, values: list[Any]) -> Any:
        if values[self.key] is None:
            return None
        for number, convert in self.converters:
            if values[number] is not None:
                values[number] = convert(values[number])
        return self.model.from_db(DEFAULT_DB_ALIAS, self.names, values)

    def link(self, parent: Any, instance: Any) -> None:
        if instance is None:
            self.relation.set_cached_value(parent, None)
        else:
            setattr(parent, self.name, instance)
