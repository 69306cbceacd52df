from __future__ import annotations

from typing import Any

import pytest

from llm.wire.items import function_call_output, message, user_message
from tools.loop.late_results import result_message
from tools.loop.untrusted_content import has_untrusted_content
from tools.registry import RuntimeTool, tool, tool_of


async def nothing(context: Any, arguments: dict[str, Any]) -> None:
    """Not called here."""


def _tool(name: str, **fields: Any) -> RuntimeTool:
    return RuntimeTool(name=name, description="", parameters={}, call=nothing, **fields)


TOOLS = {
    each.name: each
    for each in (
        _tool("count", replay="safe"),
        _tool("send"),
        _tool("read", risk="reads", replay="safe"),
        _tool("both", risk="both"),
    )
}


def call(name: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": name, "arguments": "{}"}


def after(name: str) -> list[dict[str, Any]]:
    return [user_message("Hi"), call(name), function_call_output(name, "x")]


def with_part(**part: Any) -> list[dict[str, Any]]:
    return [{**user_message(""), "content": [part]}]


CITATION = {"type": "url_citation", "url": "https://example.org/"}
CITED = {"type": "output_text", "text": "x", "annotations": [CITATION]}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], False),
        ([user_message("Hi"), message("assistant", "Hello.")], False),
        ([{"type": "message", "role": "user", "content": "Hi"}], False),
        ([{"type": "reasoning", "id": "r"}, call("read")], False),  # no output yet
        ([{"type": "image_generation_call", "id": "i"}], False),
        (after("count"), False),
        (after("send"), False),
        (after("functions.send"), False),  # a mistaken name of the same tool
        (after("read"), True),
        (after("both"), True),
        (after("removed_since"), True),
        (after("of_the_client"), True),
        ([function_call_output("lost", "x")], True),  # its call is not there
        ([call("send"), result_message("send", "send", "x")], False),
        ([call("read"), result_message("read", "read", "x")], True),
        ([result_message("earlier", "send", "x")], False),  # of an earlier turn
        ([result_message("earlier", "read", "x")], True),
        ([result_message("earlier", "removed_since", "x")], True),
        (with_part(type="input_file", file_data="x"), True),
        (with_part(type="input_image", image_url="x"), True),
        (with_part(type="of_next_year"), True),
        (with_part(**CITED), True),
        ([{"type": "web_search_call", "id": "w"}], True),
        ([{"type": "mcp_call", "id": "m"}], True),
        ([{"type": "compaction", "id": "c"}], True),
        ([{"type": "of_next_year"}], True),
    ],
)
def test_content_of_others_is_found(items: list[dict[str, Any]], expected: bool):
    assert has_untrusted_content(items, TOOLS) is expected


@pytest.mark.parametrize(
    ("fields", "risk", "asks"),
    [
        ({}, "changes", True),
        ({"replay": "idempotent"}, "changes", True),
        ({"replay": "safe"}, "none", False),
        ({"replay": "safe", "risk": "both"}, "both", True),
        ({"risk": "reads"}, "reads", False),
        ({"runs_after_untrusted": True}, "changes", False),
    ],
)
def test_a_function_that_may_not_be_repeated_changes_something(fields, risk, asks):
    @tool(**fields)
    def act() -> None:
        """Act."""

    made = tool_of(act)
    assert (made.risk_class, made.asks_after_untrusted) == (risk, asks)
