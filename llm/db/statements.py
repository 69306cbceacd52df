"""Statements that are sent as SQL: queries and inserts that are compiled once and run
with changing values, and plain ones.

The ORM takes ten times as long to build a query as the database takes to run it, and
every message runs the same dozen (decision 19). The compiled ones are written as
querysets and models, so the SQL is Django's, for SQLite and for PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property, partial
from itertools import accumulate, chain, islice
from threading import Lock
from typing import Any, Generic, TypeVar

from django.db import DEFAULT_DB_ALIAS, connection, connections, models

from llm.db.columns import (
    find_converter,
    find_primary_key,
    list_columns,
)

M = TypeVar("M", bound=models.Model)
Row = Sequence[Any]
#: SQL, its parameters for sample values, and pairs: the index of a parameter, the index
#: of its value in the arguments of a call.
_Compiled = tuple[str, Row, list[tuple[int, int]]]


#: Shared results of one query, such as one per set of groups or per provider.
MAX_KNOWN = 64
Statement = tuple[str, Sequence[Any]]  # and its values
#: Condition of the statements that `execute_after` executes after the first one.
IS_CHANGED = "EXISTS (SELECT FROM changed)"
_DATETIME = models.DateTimeField()


def fetch_rows(sql: str, values: Sequence[Any] | None) -> list[tuple[Any, ...]]:
    with prepared_cursor() as cursor:
        cursor.execute(sql, values)
        return list(cursor.fetchall())


def prepared_cursor() -> Any:
    """A cursor for statements that are executed often: where Parley's own database
    backend is used (PostgreSQL), it stores their plans."""
    database = connections[DEFAULT_DB_ALIAS]
    return getattr(database, "prepared_cursor", database.cursor)()


def adapt_value(value: Any) -> Any:
    """A datetime as the database takes it; any other value unchanged."""
    if not isinstance(value, datetime):
        return value
    return _DATETIME.get_db_prep_value(value, connections[DEFAULT_DB_ALIAS])


def allow_long_idle() -> None:
    """Let PostgreSQL's current transaction, if there is one, idle longer. All others
    keep the few seconds of `project.environment.scaled`, after which PostgreSQL frees
    the locks of a process that hangs."""
    database = connections[DEFAULT_DB_ALIAS]
    if database.vendor == "postgresql" and database.in_atomic_block:
        with database.cursor() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = '60s'")


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
        self._known: dict[tuple[Row, ...], Sequence[M]] = {}  # instances by their rows
        self._lock = Lock()

    def all(self, *values: Any) -> list[M]:
        return [self.create_instance(row) for row in self.rows(*values)]

    def first(self, *values: Any) -> M | None:
        return next(iter(self.all(*values)), None)

    def all_shared(self, *values: Any) -> Sequence[M]:
        """As `all`, for rows that are read far more often than they change: equal rows
        give the instances of the last time, to all threads. Do not change them."""
        rows = tuple(self.rows(*values))
        with self._lock:
            if (known := self._known.pop(rows, None)) is not None:
                self._known[rows] = known  # the most recently used one is the last
                return known
        known = [self.create_instance(row) for row in rows]
        with self._lock:
            if len(self._known) >= MAX_KNOWN:
                del self._known[next(iter(self._known))]
            return self._known.setdefault(rows, known)

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
        self.key = self.names.index(find_primary_key(model).attname)
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
    return field.get_db_prep_save(value, database)
