"""Which rows of its tables a short test run takes: `pytest --rows 2`."""

from __future__ import annotations

from collections.abc import Iterable


def thin_tables(names: Iterable[str], rows: int) -> set[str]:
    """Of each test at most so many rows: the first, the last, and some in between.

    Every test remains, if only with one row. A name is that of pytest, with the row in
    brackets.
    """
    tables: dict[str, list[str]] = {}
    for name in names:
        tables.setdefault(name.partition("[")[0], []).append(name)
    return {name for table in tables.values() for name in _spread(table, rows)}


def _spread(table: list[str], rows: int) -> list[str]:
    if rows == 1 or len(table) <= rows:
        return table[:rows]
    last = len(table) - 1
    return [table[number * last // (rows - 1)] for number in range(rows)]
