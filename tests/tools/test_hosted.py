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
    assert found == [] or found == [
        "Put a store's own id in the place of the example's."
    ]


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
        ({"type": "teleport"}, "No provider has a tool of the type 'teleport'; there"),
        ({"type": "function", "name": "f"}, "No provider has a tool of the type"),
        ({"type": "computer"}, "Computer use needs a program"),
        ({"type": "web_search", "depth": 3}, "'depth' is unknown; there are "),
        ({"type": "web_search", "filters": []}, "'filters' is an object"),
        (
            {"type": "web_search", "filters": {"domains": ["a"]}},
            "'filters' knows no 'domains'",
        ),
        (
            {"type": "web_search", "filters": {"allowed_domains": ["https://a.test"]}},
            "'allowed_domains' is a list of domains such as example.com",
        ),
        (
            {
                "type": "web_search",
                "filters": {"allowed_domains": ["a"], "blocked_domains": ["b"]},
            },
            "Name allowed domains or blocked ones",
        ),
        ({"type": "web_search", "user_location": "Bonn"}, "'user_location' is an"),
        (
            {"type": "web_search", "search_context_size": "huge"},
            "'search_context_size' is low, medium or high.",
        ),
        ({"type": "file_search"}, "Name the stores to look into"),
        ({**FILES, "vector_store_ids": "vs_1"}, "Name the stores to look into"),
        ({**FILES, "max_num_results": 51}, "'max_num_results' is a whole number"),
        ({"type": "code_interpreter", "container": {}}, "'container' is "),
        ({**WIKI, "server_label": " "}, "Give the server a short name"),
        ({**WIKI, "server_url": None}, "Say where the server is"),
        ({**WIKI, "server_url": "http://wiki.test"}, "'server_url' must begin with"),
        ({**WIKI, "server_url": "https://["}, "'server_url' must begin with"),
        ({**WIKI, "server_url": "https://u:p@wiki.test"}, "must hold no password"),
        ({**WIKI, "require_approval": "always"}, "Set 'require_approval' to 'never'"),
        ({**WIKI, "allowed_tools": "read"}, "'allowed_tools' is a list of names"),
        ({**WIKI, "headers": {"X": 1}}, "'headers' is an object"),
        ({**WIKI, "authorization": "t"}, "A definition is kept in the open"),
    ],
)
def test_each_mistake_has_its_sentence(definition: Any, sentence: str):
    found = find_definition_problems(definition)
    assert sentence in " ".join(found)
    assert all(each.endswith((".", "}.")) for each in found)


# Who would refuse


def test_the_page_names_who_takes_a_tool_before_who_does_not():
    told = hosts_of(FILES)
    takers = {host.label for host in told if not host.why_not}
    assert takers == {"Azure OpenAI", "Google Gemini", "OpenAI", "xAI"}
    assert [host.why_not == "" for host in told] == sorted(
        [host.why_not == "" for host in told], reverse=True
    )


def test_a_refusal_says_what_there_would_be():
    told = {each.family: each for each in find_hosted_refusals(FILES)}
    assert told["Perplexity"].reasons == (
        "Of its provider's own tools it has 'web_search'.",
    )
    assert told["Perplexity"].remedy == REFUSED_OR_OMITTED
    assert "no tools of its provider's own" in told["Mistral"].reasons[0]
    assert "vertex" not in {family.lower() for family in told}


def test_fields_that_a_host_cannot_be_told_are_a_reason():
    kept = {"type": "web_search", "filters": {"allowed_domains": ["a.test"]}}
    told = {each.family: each.reasons[0] for each in find_hosted_refusals(kept)}
    assert "searches the whole web" in told["Google Gemini"]
    assert "OpenAI" not in told
