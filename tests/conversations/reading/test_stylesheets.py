"""Selectors that would have the browser style a whole answer anew as it grows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.serving import BASE

_SHEETS = sorted((BASE / "static/css").glob("*.css"))
#: Any element after another one, and whether an element has any element within.
_COSTLY = re.compile(
    r"[+~] *(\*|:(?!is|where))|:has\(\*\)|html:has\((?!>)|\.page:has\("
)


@pytest.mark.parametrize("sheet", _SHEETS, ids=lambda path: path.name)
def test_no_rule_styles_the_rest_of_a_growing_answer_anew(sheet: Path):
    rules = re.sub(r"/\*.*?\*/", "", sheet.read_text(), flags=re.DOTALL)
    assert [found.group() for found in _COSTLY.finditer(rules)] == []
