"""What tests cost in seconds of CPU, and which of them a budget leaves.

A machine that others load takes longer, but hardly more CPU. What all tests of a worker
share, such as the database, counts for none.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

import pytest

#: The tests that cost more than FLOOR; `pytest --write-costs` writes it.
FILE = Path(__file__).parents[1] / "costs.txt"
FLOOR = 0.05
#: What a test of a run with a budget may cost at most, on a slow machine and where it
#: is the first to import something.
LIMIT = 1.0
_PROPERTY = "cpu"


def read_costs(path: Path = FILE) -> dict[str, float]:
    """By test, without its row."""
    lines = (line.split(" ", 1) for line in path.read_text().splitlines())
    return {name: float(cost) for cost, name in lines}


def write_costs(measured: Mapping[str, float], path: Path = FILE) -> None:
    """Those of tests that were not measured stay, if their file exists."""
    costs = {
        name: cost
        for name, cost in read_costs(path).items()
        if name not in measured and (path.parents[1] / _file_of(name)).exists()
    }
    costs |= {name: cost for name, cost in measured.items() if cost > FLOOR}
    path.write_text("".join(f"{costs[name]:.2f} {name}\n" for name in sorted(costs)))


def choose_cheap(
    names: Iterable[str], budget: float, costs: Mapping[str, float]
) -> set[str]:
    """The tests that cost at most `budget`, and of each other file the cheapest one.

    A test without a recorded cost is cheap.
    """
    files: dict[str, dict[str, float]] = {}
    for name in names:
        cost = costs.get(_without_row(name), 0.0)
        files.setdefault(_file_of(name), {})[name] = cost
    chosen = set()
    for file in files.values():
        cheap = {name for name, cost in file.items() if cost <= budget}
        chosen |= cheap or {min(file, key=lambda name: file[name])}
    return chosen


def _without_row(name: str) -> str:
    return name.partition("[")[0]


def _file_of(name: str) -> str:
    return name.partition("::")[0]


class Meter:
    """A plugin that measures each test: its function, and the fixtures of its own."""

    def __init__(self) -> None:
        self.costs: dict[str, float] = {}  # of a test's dearest row
        self._shared = 0.0  # that fixtures of the session took

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        begun, shared = _cpu_seconds(), self._shared
        yield
        own = _cpu_seconds() - begun - (self._shared - shared)
        item.user_properties.append((_PROPERTY, own))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        begun = _cpu_seconds()
        yield
        item.user_properties.append((_PROPERTY, _cpu_seconds() - begun))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object]
    ) -> Generator[None, object, object]:
        begun = _cpu_seconds()
        made = yield
        if fixturedef.scope == "session":
            self._shared += _cpu_seconds() - begun
        return made

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            spent = sum(
                part for name, part in report.user_properties if name == _PROPERTY
            )
            name = _without_row(report.nodeid)
            self.costs[name] = max(spent, self.costs.get(name, 0.0))


def _cpu_seconds() -> float:
    """Of this process and of those that it has waited for."""
    return sum(os.times()[:4])
