from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.mcp.server_spec import MAX_SERVER_NAME
from tools.mcp.tool_definition import ToolDefinition, build_tool_name
from tools.registry import NAME

SERVERS = st.from_regex(r"\A[a-z][a-z0-9-]{0,29}\Z")


@given(SERVERS, st.text(min_size=1, max_size=200))
def test_every_name_of_a_tool_fits_every_provider(server: str, tool: str):
    assert len(server) <= MAX_SERVER_NAME
    assert NAME.match(build_tool_name(server, tool))


@given(SERVERS, SERVERS, st.text(min_size=1), st.text(min_size=1))
def test_two_tools_never_get_one_name(one: str, other: str, a: str, b: str):
    if (one, a) != (other, b):
        assert build_tool_name(one, a) != build_tool_name(other, b)


def test_a_plain_name_is_kept_and_an_odd_one_repaired():
    assert build_tool_name("docs", "search") == "docs__search"
    assert build_tool_name("docs", "search.all").startswith("docs__search_all_")


def test_a_stored_definition_is_read_unchanged():
    definition = ToolDefinition(name="x", annotations={"readOnlyHint": True})
    assert ToolDefinition.from_dict(definition.as_dict) == definition
    assert ToolDefinition.from_dict(definition.as_dict).digest == definition.digest


def test_large_integers_are_floats_also_as_postgresql_returns_them():
    stored = ToolDefinition(name="x").as_dict
    listed = [
        ToolDefinition.from_dict({**stored, "parameters": {"maximum": maximum}})
        for maximum in (2**64, float(2**64), int(float(2**64)))
    ]
    assert len({each.digest for each in listed}) == 1
    assert '"maximum": 1.8446744073709552e+19' in listed[0].readable


@pytest.mark.parametrize(
    ("annotations", "replay"),
    [
        ({}, "once"),
        ({"readOnlyHint": True}, "safe"),
        ({"readOnlyHint": True, "idempotentHint": True}, "safe"),
        ({"idempotentHint": True}, "idempotent"),
        ({"idempotentHint": False}, "once"),
        ({"readOnlyHint": "yes"}, "once"),
    ],
)
def test_the_replay_class_is_what_the_server_hints(annotations: Any, replay: str):
    assert ToolDefinition(name="x", annotations=annotations).replay == replay
