from __future__ import annotations

import pytest

from tests.short_runs.rows import thin_tables

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
