"""A choice of Anthropic's search is one of the host's own search."""

from __future__ import annotations

from typing import Any

import pytest

from conversations.gateway.request_tools import with_search_choice
from llm.provider import Route
from llm.wire.request import Request
from tests.llm.hosts import route_at

CHAT = route_at("openai", "openai_chat", model="gpt-5.6")
RESPONSES = route_at("openai", "openai_responses", model="gpt-5.6")
SEARCH = {"type": "web_search"}
FUNCTION = {"type": "function", "name": "web_search", "parameters": {}}


def choice_at(route: Route, name: str, *tools: dict[str, Any]) -> Any:
    choice = {"type": "function", "name": name}
    request = Request(model="m", items=[], tools=tools, tool_choice=choice)
    return with_search_choice(request, route).tool_choice


def test_the_search_is_chosen():
    assert choice_at(RESPONSES, "web_search", SEARCH) == {"type": "web_search"}
    assert choice_at(CHAT, "web_search", SEARCH) is None


@pytest.mark.parametrize("route", [CHAT, RESPONSES], ids=["chat", "responses"])
@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("calculator", [SEARCH]),  # a tool of Parley's, which is added later
        ("web_search", [SEARCH, FUNCTION]),
        ("web_search", [FUNCTION]),
    ],
)
def test_another_tool_stays_chosen(
    route: Route, name: str, tools: list[dict[str, Any]]
):
    assert choice_at(route, name, *tools) == {"type": "function", "name": name}
