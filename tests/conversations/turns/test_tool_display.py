from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.turns.tool_display import (
    MAX_COLUMNS,
    MAX_DEPTH,
    MAX_NODES,
    MAX_ROWS,
    FileLink,
    Json,
    Picture,
    Table,
    Text,
    file_piece,
    pieces,
    pretty,
    preview,
    shorten,
    tree,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def text_of(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


@given(JSON)
def test_the_text_of_a_tree_is_the_json_itself(value: Any):
    assert json.loads(text_of(tree(value))) == value


def test_nothing_in_a_tree_becomes_markup():
    html = tree({"<b>": ["</div><script>alert(1)</script>", '" onclick="x']})
    assert "<b>" not in html
    assert "<script" not in html
    assert set(re.findall(r"<(\w+)", html)) <= {"div", "details", "summary", "span"}


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("", []),
        (None, []),
        ("just words", [Text("just words")]),
        ("[1, 2", [Text("[1, 2")]),
        ("17", [Text("17")]),
        ('{"a": [1]}', [Json({"a": [1]})]),
        ('[{"a": 1}]', [Json([{"a": 1}])]),
        ('[{"a": 1}, {"b": {}}]', [Json([{"a": 1}, {"b": {}}])]),
        (
            '[{"a": 1, "b": "x"}, {"a": null, "c": true}]',
            [
                Table(
                    ["a", "b", "c"],
                    [["1", "x", ""], ["", "", "true"]],
                    0,
                    [{"a": 1, "b": "x"}, {"a": None, "c": True}],
                )
            ],
        ),
        (
            [
                {"type": "input_text", "text": '{"a": 1}'},
                {"type": "input_image", "image_url": PIXEL},
                {"type": "input_file", "filename": "a.txt", "file_id": "file_1"},
            ],
            [
                Json({"a": 1}),
                Picture(PIXEL),
                FileLink("a.txt", "/api/attachments/file_1/"),
            ],
        ),
    ],
)
def test_an_output_is_shown_as_what_it_is(output: Any, found: list[Any]):
    assert pieces(output) == found


def test_a_long_table_reports_how_many_rows_are_missing():
    [table] = pieces(json.dumps([{"n": n} for n in range(MAX_ROWS + 7)]))
    assert isinstance(table, Table)
    assert (len(table.rows), table.more) == (MAX_ROWS, 7)


def test_data_too_large_for_a_tree_or_table_is_shown_as_text():
    wide = [{f"c{n}": n for n in range(MAX_COLUMNS + 1)}] * 2
    assert isinstance(pieces(json.dumps(wide))[0], Json)
    assert isinstance(pieces(json.dumps(list(range(MAX_NODES + 1))))[0], Text)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 300, 900, 5000])
def test_data_nested_too_deep_for_a_page_is_shown_as_text(levels: int):
    deep = "[" * levels + "]" * levels
    assert pieces(deep) == [Text(deep)]
    assert pretty(deep) == deep
    assert preview(f'{{"a": {deep}}}') == ""
    [nested] = pieces(deep[levels - MAX_DEPTH : levels + MAX_DEPTH])
    assert isinstance(nested, Json)
    assert tree(nested.value).count("[</summary>") == MAX_DEPTH - 2


def test_a_value_nested_too_deep_is_shown_as_its_json():
    value: list[Any] = []
    for _ in range(300):
        value = [value]
    assert pieces(value) == [Text("[" * 301 + "]" * 301)]


@pytest.mark.parametrize(
    ("part", "url"),
    [
        ({"type": "input_image", "image_url": PIXEL}, PIXEL),
        ({"type": "input_image", "image_url": "https://a.test/x"}, "https://a.test/x"),
        ({"type": "input_image", "image_url": "javascript:alert(1)"}, ""),
        ({"type": "input_image", "image_url": "data:image/svg+xml;base64,PHN2"}, ""),
        ({"type": "input_image", "image_url": ["x"]}, ""),
        ({"type": "input_file", "file_url": "data:text/html,<script>"}, ""),
        ({"type": "input_file", "file_url": "HTTPS://a.test/x"}, "HTTPS://a.test/x"),
    ],
)
def test_only_what_is_harmless_is_linked(part: dict[str, Any], url: str):
    piece = file_piece(part)
    assert piece.url == url
    if isinstance(piece, Picture):
        assert piece.is_inline == url.startswith("data:")


WRITTEN = ["1.10", "1e5", "1E-7", "-0", "1.0", "9007199254740993", "9" * 5000, "1e999"]


@pytest.mark.parametrize("number", WRITTEN)
def test_a_number_is_shown_as_it_is_written(number: str):
    assert preview(f'{{"n": {number}}}') == shorten(number)
    assert pretty(f'{{"n":[{number},{{}}]}}') == (
        f'{{\n  "n": [\n    {number},\n    {{}}\n  ]\n}}'
    )
    [nested] = pieces(f'{{"n": {number}}}')
    assert isinstance(nested, Json)
    assert text_of(tree(nested.value)) == f'{{"n": {number}}}'
    [table] = pieces(f'[{{"n": {number}}}, {{"n": 1}}]')
    assert isinstance(table, Table)
    assert table.rows == [[number], ["1"]]


@given(JSON)
def test_a_value_is_indented_as_the_standard_library_does_it(value: Any):
    if isinstance(value, dict | list):
        assert pretty(value) == json.dumps(value, indent=2, ensure_ascii=False)
