from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.http.visible_text import visible_text

MEGABYTE = 1024 * 1024
TAGS = ["<script>", "</script>", "<style ", "</STYLE\n>", "<b>", "</b>", "<", ">", "İ"]


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<h1>Oops</h1>\n<p>later</p>", "Oops later"),
        ("<style>x{}</style>y<script >if (a<b) {}</script\n>z", "y z"),
        ("<SCRIPT>x</Script>y", "y"),
        ("İ<STYLE>x</style>y", "İ y"),
        ("<styled>x</styled>", "x"),
        ("a < b and no end", "a < b and no end"),
        ("a<script>never closed", "a"),
        ("a<script>x</script never closed", "a"),
        ("<b", "<b"),
        ("", ""),
    ],
)
def test_text_between_the_tags_is_visible(page: str, text: str):
    assert " ".join(visible_text(page).split()) == text


@given(st.lists(st.sampled_from([*TAGS, "words ", "x"])).map("".join))
def test_no_page_is_too_broken(page: str):
    text = visible_text(page)
    assert len(text) <= 2 * len(page)
    assert "<b>" not in text


@pytest.mark.timeout(60)  # a reader that rescans for each tag needs an hour
@pytest.mark.parametrize(
    "unit", ["<script>", "<style", "<", "<b>", "<script></script", "</script>", "<b "]
)
def test_a_hostile_page_is_read_once(unit: str):
    page = unit * (MEGABYTE // len(unit))
    assert len(visible_text(page)) <= 2 * len(page)
