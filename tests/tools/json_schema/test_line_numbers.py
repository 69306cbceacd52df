from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.json_schema.line_numbers import line_of

TEXT = """{
  "type": "object",
  "properties": {
    "a\\"b": {"type": "string"},
    "list": [
      1, [],
      {"deep": {
        "x": null }}
    ]
  }
}"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ([], 1),
        (["type"], 2),
        (["properties"], 3),
        (["properties", 'a"b', "type"], 4),
        (["properties", "list"], 5),
        (["properties", "list", 0], 6),
        (["properties", "list", 1], 6),
        (["properties", "list", 2, "deep"], 7),
        (["properties", "list", 2, "deep", "x"], 8),
        (["properties", "list", 9], 5),  # as far as it goes
        (["properties", "list", "x"], 5),
        (["type", "x", "y"], 2),
    ],
)
def test_a_value_has_a_line(path: list, line: int):
    assert line_of(TEXT, path) == line


NAMES = st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.integers() | NAMES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(VALUES, st.data())
def test_whatever_the_value_the_line_is_where_it_begins(value, data):
    path, at = [], value
    while at and isinstance(at, dict | list):
        keys = list(at) if isinstance(at, dict) else range(len(at))
        path.append(data.draw(st.sampled_from(keys)))
        at = at[path[-1]]
    text = json.dumps(value, indent=1)
    line = text.splitlines()[line_of(text, path) - 1]
    assert json.dumps(at) in line or at in ({}, [])
