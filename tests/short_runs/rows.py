"""Which rows of its tables a short test run takes: `pytest --rows 2`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: What a test's table has at least, even if its rows are dear.
FEWEST = 2


def thin_tables(
    names: Iterable[str], rows: int | Mapping[str, int] | None = None
) -> set[str]:
    """Of each test at most so many rows: the first, the last, and some in between.

    `rows` is a number for all tests, or one by the test's name; a test without one
    retains its table. Every test remains, if only with one row. A name is that of
    pytest, with the row in brackets.
    """
    tables: dict[str, list[str]] = {}
    for name in names:
        tables.setdefault(name.partition("[")[0], []).append(name)
    left: set[str] = set()
    for test, table in tables.items():
        limit = rows.get(test) if isinstance(rows, Mapping) else rows
        left |= {*table} if limit is None else {*_spread(table, limit)}
    return left


def rows_within(budget: float, costs: Mapping[str, float]) -> dict[str, int]:
    """How many rows of each test cost at most `budget` seconds of CPU, by its name.

    A test without a recorded cost is cheap: it has no limit.
    """
    return {
        test: max(FEWEST, int(budget / cost)) for test, cost in costs.items() if cost
    }


def _spread(table: list[str], rows: int) -> list[str]:
    if rows == 1 or len(table) <= rows:
        return table[:rows]
    last = len(table) - 1
    return [table[number * last // (rows - 1)] for number in range(rows)]
