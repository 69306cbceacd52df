"""docs/security/asvs.md judges each requirement of levels 1 and 2 once."""

from __future__ import annotations

import re
from collections import Counter

from tests.serving import BASE

TEXT = (BASE / "docs" / "security" / "asvs.md").read_text()
ROWS = re.findall(
    r"^\| (\d+\.\d+\.\d+) \| ([12]) \| .+ \| (pass|n/a|fail) \| (.*) \|$",
    TEXT,
    re.MULTILINE,
)


def test_each_requirement_is_judged_once():
    """The standard has 70 of level 1 and 183 of level 2."""
    assert len({number for number, *_ in ROWS}) == len(ROWS)
    assert Counter(level for _, level, *_ in ROWS) == {"1": 70, "2": 183}
    assert all(evidence for *_, evidence in ROWS)


def test_the_sums_are_those_of_the_table():
    for level in ("1", "2"):
        found = Counter(result for _, each, result, _ in ROWS if each == level)
        sums = f"{found['pass']} pass, {found['n/a']} not applicable"
        assert f"Level {level}: {sums}, {found['fail']} fail." in TEXT


def test_no_requirement_of_level_1_fails():
    assert [n for n, level, result, _ in ROWS if (level, result) == ("1", "fail")] == []


def test_each_failure_has_its_reason_at_the_top():
    failed = {number for number, _, result, _ in ROWS if result == "fail"}
    assert set(re.findall(r"^- \*\*([\d.]+)\*\*", TEXT, re.MULTILINE)) == failed
