from __future__ import annotations

from pathlib import Path

from tests.short_runs.costs import choose_cheap, read_costs, write_costs

COSTS = {"a.py::test_dear": 0.9, "b.py::test_dear": 0.9, "b.py::test_dearer": 1.2}


def test_what_is_within_the_budget_or_not_recorded_runs():
    tests = ["a.py::test_dear", "a.py::test_dear[row[1]]", "a.py::test_new[0]"]
    assert choose_cheap(tests, 0.5, COSTS) == {"a.py::test_new[0]"}
    assert choose_cheap(tests, 0.9, COSTS) == {*tests}


def test_of_a_file_of_dear_tests_the_cheapest_runs():
    assert choose_cheap([*COSTS], 0.5, COSTS) == {"a.py::test_dear", "b.py::test_dear"}


def test_costs_of_tests_that_did_not_run_stay(tmp_path: Path):
    path = tmp_path / "tests" / "costs.txt"
    path.parent.mkdir()
    for name in ("a.py", "b.py"):
        (tmp_path / name).touch()
    path.write_text("")
    write_costs({"a.py::test_1": 0.5, "b.py::test_2": 0.7, "c.py::test_3": 0.7}, path)
    write_costs({"b.py::test_2": 0.01, "b.py::test_4": 0.3}, path)
    assert read_costs(path) == {"a.py::test_1": 0.5, "b.py::test_4": 0.3}
