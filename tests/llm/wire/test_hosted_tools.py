from __future__ import annotations

from typing import Any

import pytest

from llm.errors import BadRequest
from llm.providers import all_providers
from llm.wire.hosted_tools import WebSearchOptions, container_files, screenshot_of
from llm.wire.items import user_message
from llm.wire.request import Request

ALLOWED = {"type": "web_search", "filters": {"allowed_domains": ["a.test"]}}
BLOCKED = {"type": "web_search", "filters": {"blocked_domains": ["b.test"]}}
OWN = {"type": "code_interpreter", "container": "cntr_1"}
WITH_FILES = {
    "type": "code_interpreter",
    "container": {"type": "auto", "file_ids": ["f"]},
}
WIKI = {
    "type": "mcp",
    "server_label": "wiki",
    "server_url": "https://wiki.test/mcp",
    "require_approval": "never",
}
READ_ONLY = {**WIKI, "allowed_tools": {"read_only": True}}
FILES = {"type": "file_search", "vector_store_ids": ["s"]}


def test_xais_word_for_blocked_domains_is_known():
    tool = {"filters": {"excluded_domains": ["a.test"]}}
    assert WebSearchOptions.of(tool).blocked == ("a.test",)


def test_a_search_has_one_list_of_domains():
    filters = {"allowed_domains": ["a"], "blocked_domains": ["b"]}
    with pytest.raises(BadRequest, match="not both"):
        WebSearchOptions.of({"type": "web_search", "filters": filters})


def test_files_are_in_a_container_that_lists_them():
    assert container_files(WITH_FILES) == ("f",)
    assert container_files(OWN) == container_files({}) == ()


@pytest.mark.parametrize(
    ("wire", "tool", "why"),
    [
        ("gemini", ALLOWED, "'web_search' does not support 'allowed_domains'"),
        ("gemini", BLOCKED, "does not support 'blocked_domains'"),
        ("gemini", READ_ONLY, "does not support 'allowed_tools'"),
        ("gemini", {**WIKI, "server_url": ""}, "only 'server_url'"),
        ("gemini", {**WIKI, "require_approval": "always"}, "without approval"),
        ("gemini", WITH_FILES, "does not support 'container'"),
        ("gemini", {**FILES, "vector_store_ids": []}, "needs 'vector_store_ids'"),
        (
            "gemini",
            {**FILES, "filters": {"type": "in"}},
            "not support filters of the type 'in'",
        ),
        ("vertex", FILES, "no tool of the type 'file_search'"),
        ("vertex", WIKI, "no tool of the type 'mcp'"),
        ("openai", BLOCKED, "does not support 'blocked_domains'"),
        ("openai", {**WIKI, "server_url": None}, "needs 'server_url'"),
        ("openai", {**WIKI, "server_label": ""}, "needs 'server_label'"),
        ("openai", {"type": "file_search"}, "needs 'vector_store_ids'"),
        ("openai", {"type": "computer_use_preview"}, "needs 'display_width'"),
        ("meta", ALLOWED, "does not support 'filters'"),
        ("xai", OWN, "does not support 'container'"),
        ("xai", {**WIKI, "require_approval": None}, "without approval"),
        ("xai", READ_ONLY, "only as a list of names"),
        ("xai", {"type": "computer"}, "no tool of the type 'computer'"),
        ("anthropic", READ_ONLY, "only as a list of names"),
        ("anthropic", OWN, "does not support 'container'"),
        (
            "anthropic",
            {**WIKI, "headers": {"X": "1"}},
            "'server_url' and 'authorization'",
        ),
        ("groq", ALLOWED, "does not support 'filters'"),
        ("groq", WITH_FILES, "does not support 'container'"),
        ("mistral", ALLOWED, "no tool of the type 'web_search'"),
    ],
)
def test_an_unsupported_hosted_tool_is_refused(wire: str, tool: Any, why: str):
    provider = all_providers()[wire]
    model = provider.default_model or "gemini-3.8-flash"
    request = Request(model=model, items=[user_message("Hi")], tools=[tool])
    with pytest.raises(BadRequest, match=why) as caught:
        provider.codec().encode(request)
    assert caught.value.param == "tools"


def test_a_screenshot_has_a_picture():
    assert screenshot_of({"output": {"file_id": "f"}})["file_id"] == "f"
    with pytest.raises(BadRequest, match="'image_url'"):
        screenshot_of({"output": {}})
