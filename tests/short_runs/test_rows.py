from __future__ import annotations

import pytest

from tests.short_runs.rows import rows_within, thin_tables

PLAIN = ["test_a.py::test_plain", "test_a.py::TestIt::test_plain"]
TABLE = [f"test_a.py::test_table[{vendor}]" for vendor in "abcdefg"]
OTHER = [f"test_b.py::test_table[{vendor}[0]]" for vendor in "ab"]


@pytest.mark.parametrize(
    ("rows", "table", "other"),
    [(1, "a", "a"), (2, "ag", "ab"), (3, "adg", "ab"), (9, "abcdefg", "ab")],
)
def test_every_test_remains_with_rows_from_all_of_its_table(
    rows: int, table: str, other: str
):
    left = {
        *PLAIN,
        *(f"test_a.py::test_table[{vendor}]" for vendor in table),
        *(f"test_b.py::test_table[{vendor}[0]]" for vendor in other),
    }
    assert thin_tables([*PLAIN, *TABLE, *OTHER], rows) == left


def test_a_table_of_dear_rows_is_thinned_to_a_budget_and_a_cheap_one_is_not():
    rows = rows_within(1.5, {"test_a.py::test_table": 0.5, "test_b.py::test_table": 9})
    left = {f"test_a.py::test_table[{vendor}]" for vendor in "adg"}
    assert thin_tables([*TABLE, *OTHER], rows) == {*left, *OTHER}
    assert thin_tables([*TABLE, *OTHER], {}) == {*TABLE, *OTHER}
