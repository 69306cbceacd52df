from __future__ import annotations

from typing import Any

import pytest

from tools.mcp.tool_comparison import compare
from tools.mcp.tool_definition import ToolDefinition

OLD = ToolDefinition(
    name="add",
    description="Add two numbers.\nFast.",
    parameters={"type": "object", "properties": {"a": {"type": "integer"}}},
)


def changed(**values: Any) -> ToolDefinition:
    return ToolDefinition.from_dict({**OLD.as_dict, **values})


@pytest.mark.parametrize(
    ("values", "part", "line"),
    [
        ({"description": "Add two numbers.\nSlow."}, "description", "+Slow."),
        ({"parameters": {"type": "object"}}, "parameters", '-  "properties": {'),
        ({"annotations": {"readOnlyHint": True}}, "annotations", '+  "readOnlyHint"'),
    ],
)
def test_each_changed_part_is_shown_line_by_line(values: Any, part: str, line: str):
    [change] = compare({"add": OLD}, [changed(**values)]).changed
    [(title, lines)] = change.parts
    assert title == part
    assert any(f"{each.sign}{each.text}".startswith(line) for each in lines)


def test_a_title_or_the_order_of_keys_is_no_change():
    reordered = {"properties": {"a": {"type": "integer"}}, "type": "object"}
    now = changed(title="Sum", parameters=reordered)
    comparison = compare({"add": OLD}, [now])
    assert comparison.same == (now,)
    assert not comparison.has_news


def test_new_and_removed_tools_are_listed():
    new = ToolDefinition(name="new")
    comparison = compare({"add": OLD}, [new])
    assert (comparison.new, comparison.gone) == ((new,), (OLD,))
