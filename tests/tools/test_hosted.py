from __future__ import annotations

from typing import Any

import pytest

from tools.hosted.definitions import PRESETS, find_definition_problems
from tools.json_schema.provider_support import (
    REFUSED_OR_OMITTED,
    find_hosted_refusals,
    hosts_of,
)

FILES = {"type": "file_search", "vector_store_ids": ["vs_1"]}
WIKI = {
    "type": "mcp",
    "server_label": "wiki",
    "server_url": "https://wiki.test/mcp",
    "require_approval": "never",
}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_a_preset_needs_at_most_an_id_of_ones_own(preset):
    found = find_definition_problems(preset.definition)
    assert found == [] or found == ["Replace the example by the id of a vector store."]


@pytest.mark.parametrize(
    "definition",
    [
        {"type": "web_search", "filters": {"allowed_domains": ["a.test"]}},
        {"type": "web_search", "user_location": {"city": "Bonn"}},
        {"type": "x_search", "from_date": "2026-01-01"},
        FILES,
        {"type": "code_interpreter"},
        {"type": "code_interpreter", "container": "cntr_1"},
        {**WIKI, "allowed_tools": ["read"]},
        {**WIKI, "allowed_tools": {"read_only": True}},
    ],
)
def test_a_good_definition_has_no_problem(definition: dict[str, Any]):
    assert find_definition_problems(definition) == []


@pytest.mark.parametrize(
    ("definition", "sentence"),
    [
        (None, "Write a JSON object"),
        ({}, "Write a JSON object"),
        (["web_search"], "Write a JSON object"),
        ({"type": "teleport"}, "No provider has a tool of the type 'teleport'; use"),
        ({"type": "function", "name": "f"}, "No provider has a tool of the type"),
        ({"type": "computer"}, "Computer use needs a program"),
        ({"type": "web_search", "depth": 3}, "'depth' is unknown; use "),
        ({"type": "web_search", "filters": []}, "'filters' must be an object"),
        (
            {"type": "web_search", "filters": {"domains": ["a"]}},
            "'filters' has no 'domains'",
        ),
        (
            {"type": "web_search", "filters": {"allowed_domains": ["https://a.test"]}},
            "'allowed_domains' must be a list of domains such as",
        ),
        (
            {
                "type": "web_search",
                "filters": {"allowed_domains": ["a"], "blocked_domains": ["b"]},
            },
            "Use allowed domains or blocked domains",
        ),
        ({"type": "web_search", "user_location": "Bonn"}, "'user_location' must be an"),
        (
            {"type": "web_search", "search_context_size": "huge"},
            "'search_context_size' must be low, medium or high.",
        ),
        ({"type": "file_search"}, "list of the vector stores"),
        ({**FILES, "vector_store_ids": "vs_1"}, "list of the vector stores"),
        ({**FILES, "max_num_results": 51}, "'max_num_results' must be a whole number"),
        ({"type": "code_interpreter", "container": {}}, "'container' is "),
        ({**WIKI, "server_label": " "}, "to a short name of the server"),
        ({**WIKI, "server_url": None}, "to the URL of the server"),
        ({**WIKI, "server_url": "http://wiki.test"}, "'server_url' must begin with"),
        ({**WIKI, "server_url": "https://["}, "'server_url' must begin with"),
        (
            {**WIKI, "server_url": "https://u:p@wiki.test"},
            "must not contain a password",
        ),
        ({**WIKI, "require_approval": "always"}, "Set 'require_approval' to 'never'"),
        ({**WIKI, "allowed_tools": "read"}, "'allowed_tools' must be a list of names"),
        ({**WIKI, "headers": {"X": 1}}, "'headers' must be an object"),
        ({**WIKI, "authorization": "t"}, "A definition is stored unencrypted"),
    ],
)
def test_each_mistake_has_its_sentence(definition: Any, sentence: str):
    found = find_definition_problems(definition)
    assert sentence in " ".join(found)
    assert all(each.endswith((".", "}.")) for each in found)


# Refusing hosts


def test_the_page_lists_supporting_hosts_before_the_others():
    hosts = hosts_of(FILES)
    takers = {host.label for host in hosts if not host.why_not}
    assert takers == {"Azure OpenAI", "Google Gemini", "OpenAI", "xAI"}
    assert [host.why_not == "" for host in hosts] == sorted(
        [host.why_not == "" for host in hosts], reverse=True
    )


def test_a_refusal_names_the_alternatives():
    refusals = {each.family: each for each in find_hosted_refusals(FILES)}
    assert refusals["Perplexity"].reasons == (
        "The tools that its provider runs are 'web_search'.",
    )
    assert refusals["Perplexity"].remedy == REFUSED_OR_OMITTED
    assert "no tools that its provider runs" in refusals["Mistral"].reasons[0]
    assert "vertex" not in {family.lower() for family in refusals}


def test_fields_that_a_host_does_not_support_are_a_reason():
    tool_fields = {"type": "web_search", "filters": {"allowed_domains": ["a.test"]}}
    reasons = {
        each.family: each.reasons[0] for each in find_hosted_refusals(tool_fields)
    }
    assert "does not support 'allowed_domains'" in reasons["Google Gemini"]
    assert "OpenAI" not in reasons
