"""Hosted tools as we encode them match the types of the vendors' own SDKs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from anthropic import types as claude
from anthropic.types import beta as claude_beta
from google.genai import types as google
from openai.types import responses
from openai.types.chat import completion_create_params as chat
from openai.types.responses import tool_param
from pydantic import TypeAdapter

from llm.providers import all_providers
from llm.wire.items import user_message
from llm.wire.request import Request

SEARCH = {
    "type": "web_search",
    "filters": {"allowed_domains": ["a.test"]},
    "user_location": {"type": "approximate", "city": "Bonn", "country": "DE"},
    "search_context_size": "low",
}
BLOCKED = {"type": "web_search", "filters": {"blocked_domains": ["b.test"]}}
PLACED = {"type": "web_search", "user_location": {"type": "approximate", "city": "B"}}
FILES = {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 3}
FILTERED = {
    **FILES,
    "filters": {
        "type": "and",
        "filters": [
            {"type": "eq", "key": "author", "value": "Zoë"},
            {"type": "gte", "key": "year", "value": 2020},
        ],
    },
}
CODE = {"type": "code_interpreter"}
SCREEN = {
    "type": "computer_use_preview",
    "display_width": 1024,
    "display_height": 768,
    "environment": "browser",
}
WIKI = {
    "type": "mcp",
    "server_label": "wiki",
    "server_url": "https://wiki.test/mcp",
    "authorization": "t",
    "require_approval": "never",
}
NAMED = {**WIKI, "allowed_tools": ["read"]}


def body(wire: str, *tools: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """`wire` is "provider codec model"."""
    provider, codec, model = wire.split()
    request = Request(
        model=model,
        items=[user_message("Hi")],
        tools=[dict(tool) for tool in tools],
        stream=False,
        **options,
    )
    return all_providers()[provider].codec(codec).encode(request)


def fits(value: dict[str, Any], type: Any) -> bool:
    """Whether the SDK's type takes it, and knows each of its fields."""
    TypeAdapter(type).validate_python(value)
    return value.keys() <= type.__annotations__.keys()


OPENAI = "openai openai_responses gpt-6-luna"
CLAUDE = "anthropic anthropic claude-sonnet-5-5"


@pytest.mark.parametrize(
    ("wire", "tool", "type", "expected"),
    [
        (OPENAI, SEARCH, responses.WebSearchToolParam, SEARCH),
        (OPENAI, FILTERED, responses.FileSearchToolParam, FILTERED),
        (
            OPENAI,
            CODE,
            tool_param.CodeInterpreter,
            {**CODE, "container": {"type": "auto"}},
        ),
        (OPENAI, SCREEN, responses.ComputerUsePreviewToolParam, SCREEN),
        (
            OPENAI,
            {"type": "computer"},
            responses.ComputerToolParam,
            {"type": "computer"},
        ),
        (
            OPENAI,
            {"type": "image_generation", "size": "auto"},
            tool_param.ImageGeneration,
            {"type": "image_generation", "size": "auto"},
        ),
        (OPENAI, NAMED, tool_param.Mcp, NAMED),
        (
            CLAUDE,
            {**SEARCH, "search_context_size": None},
            claude.WebSearchTool20250305Param,
            {
                "type": "web_search_20250305",
                "name": "web_search",
                "allowed_domains": ["a.test"],
                "user_location": SEARCH["user_location"],
            },
        ),
        (
            CLAUDE,
            BLOCKED,
            claude.WebSearchTool20250305Param,
            {
                "type": "web_search_20250305",
                "name": "web_search",
                "blocked_domains": ["b.test"],
            },
        ),
        (
            CLAUDE,
            CODE,
            claude.CodeExecutionTool20250825Param,
            {"type": "code_execution_20250825", "name": "code_execution"},
        ),
        (
            CLAUDE,
            SCREEN,
            claude.ComputerToolset20260801Param,
            {"type": "computer_toolset_20260801"},
        ),
        (
            CLAUDE,
            NAMED,
            claude_beta.BetaMCPToolsetParam,
            {
                "type": "mcp_toolset",
                "mcp_server_name": "wiki",
                "default_config": {"enabled": False},
                "configs": {"read": {"enabled": True}},
            },
        ),
    ],
)
def test_a_tool_is_what_the_sdk_calls_so(
    wire: str, tool: Any, type: Any, expected: Any
):
    [sent] = body(wire, tool)["tools"]
    sent.pop("cache_control", None)
    assert sent == expected
    assert fits(sent, type)


def test_claude_receives_the_address_of_the_server():
    [server] = body(CLAUDE, WIKI)["mcp_servers"]
    assert fits(server, claude_beta.BetaRequestMCPServerURLDefinitionParam)
    assert server["authorization_token"] == "t"


@pytest.mark.parametrize(
    ("wire", "tool", "expected"),
    [
        ("gemini", {"type": "web_search"}, {"googleSearch": {}}),
        ("gemini", PLACED, {"googleSearch": {}}),
        ("vertex", BLOCKED, {"googleSearch": {"excludeDomains": ["b.test"]}}),
        ("gemini", CODE, {"codeExecution": {}}),
        (
            "gemini",
            FILTERED,
            {
                "fileSearch": {
                    "fileSearchStoreNames": ["vs_1"],
                    "topK": 3,
                    "metadataFilter": '(author = "Zoë") AND (year >= 2020)',
                }
            },
        ),
        ("gemini", SCREEN, {"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}),
        (
            "vertex",
            {**SCREEN, "environment": "mac"},
            {"computerUse": {"environment": "ENVIRONMENT_DESKTOP"}},
        ),
        (
            "gemini",
            {**WIKI, "headers": {"X-A": "1"}},
            {
                "mcpServers": [
                    {
                        "name": "wiki",
                        "streamableHttpTransport": {
                            "url": "https://wiki.test/mcp",
                            "headers": {"X-A": "1", "Authorization": "Bearer t"},
                        },
                    }
                ]
            },
        ),
    ],
)
def test_googles_sdk_reads_the_same(wire: str, tool: Any, expected: dict[str, Any]):
    [sent] = body(f"{wire} gemini gemini-3.8-flash", tool)["tools"]
    assert sent == expected
    read = google.Tool.model_validate(sent)  # refuses what it does not know
    assert read.model_dump(by_alias=True, exclude_none=True, mode="json") == expected


META = "meta openai_chat muse-spark-1.3"
PERPLEXITY = "perplexity openai_chat sonar"
GROQ = "groq openai_chat openai/gpt-oss-120b"
COMPOUND = "groq openai_chat groq/compound"
ROUTER = "openrouter openai_chat openrouter/auto"


@pytest.mark.parametrize(
    ("wire", "tools", "expected"),
    [
        (META, [{"type": "web_search"}], {"web_search_options": {}}),
        (
            META,
            [PLACED],
            {
                "web_search_options": {
                    "user_location": {
                        "type": "approximate",
                        "approximate": {"city": "B"},
                    }
                }
            },
        ),
        (PERPLEXITY, [{"type": "web_search"}], {}),
        (
            PERPLEXITY,
            [SEARCH],
            {
                "web_search_options": {
                    "search_context_size": "low",
                    "user_location": {"city": "Bonn", "country": "DE"},
                },
                "search_domain_filter": ["a.test"],
            },
        ),
        (PERPLEXITY, [BLOCKED], {"search_domain_filter": ["-b.test"]}),
        (
            GROQ,
            [PLACED, CODE],
            {"tools": [{"type": "browser_search"}, {"type": "code_interpreter"}]},
        ),
        (GROQ, [{"type": "browser_search"}], {"tools": [{"type": "browser_search"}]}),
        (
            COMPOUND,
            [BLOCKED, CODE],
            {
                "compound_custom": {
                    "tools": {"enabled_tools": ["web_search", "code_interpreter"]}
                },
                "search_settings": {"exclude_domains": ["b.test"]},
            },
        ),
        (
            ROUTER,
            [{"type": "web_search"}],
            {"tools": [{"type": "openrouter:web_search"}]},
        ),
        (
            ROUTER,
            [SEARCH],
            {
                "tools": [
                    {
                        "type": "openrouter:web_search",
                        "parameters": {
                            "allowed_domains": ["a.test"],
                            "search_context_size": "low",
                            "user_location": SEARCH["user_location"],
                        },
                    }
                ]
            },
        ),
    ],
)
def test_hosts_of_chat_completions_have_words_of_their_own(
    wire: str, tools: list[Any], expected: dict[str, Any]
):
    sent = body(wire, *tools)
    added = sent.keys() - body(wire).keys()
    assert {name: sent[name] for name in added} == expected
    if "web_search_options" in expected and wire == META:
        TypeAdapter(chat.WebSearchOptions).validate_python(
            expected["web_search_options"]
        )


def test_a_recorded_search_of_openrouter_is_encoded_again():
    parameters = {"max_uses": 1, "search_context_size": "medium"}
    tool = {"type": "openrouter:web_search", "parameters": parameters}
    assert body(ROUTER, tool)["tools"] == [tool]


def test_of_chats_tools_only_allowed_ones_are_sent():
    function = {"type": "function", "name": "look", "parameters": {"type": "object"}}
    choice = {"type": "allowed_tools", "tools": [{"type": "web_search"}]}
    sent = body(ROUTER, SEARCH, function, tool_choice=choice)
    assert [tool["type"] for tool in sent["tools"]] == ["openrouter:web_search"]
    assert "web_search_options" not in body(PERPLEXITY, SEARCH, tool_choice="none")


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (
            {**SEARCH, "type": "web_search_preview"},
            {"type": "web_search", "filters": {"allowed_domains": ["a.test"]}},
        ),
        (BLOCKED, {"type": "web_search", "filters": {"excluded_domains": ["b.test"]}}),
        ({"type": "web_search"}, {"type": "web_search"}),
        ({**CODE, "container": {"type": "auto"}}, CODE),
        (
            {**NAMED, "headers": {"X-A": "1"}},
            {
                **{n: v for n, v in NAMED.items() if n != "require_approval"},
                "headers": {"X-A": "1"},
            },
        ),
        ({"type": "x_search", "from_date": "2026-01-01"},) * 2,
    ],
)
def test_xais_dialect(tool: Any, expected: Any):
    assert body("xai openai_responses grok-4.7", tool)["tools"] == [expected]


def test_openai_is_asked_to_include_the_results_of_its_tools():
    include = body(OPENAI, SEARCH, FILES, CODE)["include"]
    assert include[1:] == [
        "web_search_call.action.sources",
        "file_search_call.results",
        "code_interpreter_call.outputs",
    ]
    assert "include" not in body(
        "openai openai_responses gpt-4o", {"type": "web_search_preview"}
    )
    xai = body("xai openai_responses grok-4.7", SEARCH)
    assert xai["include"] == ["reasoning.encrypted_content"]


@pytest.mark.parametrize(
    ("wire", "tool", "option"),
    [
        (CLAUDE, SEARCH, "tools"),
        ("gemini gemini gemini-3.8-flash", PLACED, "tools"),
        ("xai openai_responses grok-4.7", SEARCH, "tools"),
        (GROQ, PLACED, "tools"),
        (CLAUDE, CODE, None),
        ("xai openai_responses grok-4.7", CODE, None),
    ],
)
def test_an_unsupported_option_is_reported(wire: str, tool: Any, option: str | None):
    provider, name, model = wire.split()
    codec: Any = all_providers()[provider].codec(name)
    request = Request(model=model, items=[user_message("Hi")], tools=[tool])
    assert ("tools" in codec.degraded(request)) == (option == "tools")
