from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from llm.errors import BadRequest
from llm.wire.facades import chat_request, messages_request, responses_request
from llm.wire.facades.request_conversion import portable
from llm.wire.request import Request

SCHEMA = {"type": "object", "properties": {"at": {"type": "integer"}}}
REQUEST = {
    "model": "m",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "?"}],
}


def of_claude(**fields: Any) -> tuple[Request, list[str]]:
    return portable(messages_request.request_of({**REQUEST, **fields}))


def test_claudes_tools_become_functions_and_its_own_are_left_out():
    tools = [
        {"name": "look", "input_schema": SCHEMA, "eager_input_streaming": True},
        {"name": "see", "description": "Sees.", "input_schema": SCHEMA},
        {"type": "web_search_20260318", "name": "web_search"},
    ]
    request, lost = of_claude(tools=tools)
    assert request.tools == [
        {"type": "function", "name": "look", "parameters": SCHEMA},
        {
            "type": "function",
            "name": "see",
            "description": "Sees.",
            "parameters": SCHEMA,
        },
    ]
    assert lost == ["tools"]


def test_a_hosted_tool_stays_where_it_can_be_had():
    tools = [{"type": "web_search"}, {"type": "namespace", "name": "n"}]
    converted = responses_request.request_of(
        {"model": "m", "input": "?", "tools": tools}
    )
    request, lost = portable(converted, hosted_tools=["web_search"])
    assert request.tools == [{"type": "web_search"}]
    assert lost == ["tools"]
    none, _ = portable(
        responses_request.request_of({**_request(tools), "tool_choice": "auto"})
    )
    assert (none.tools, none.tool_choice) == ([], None)


def _request(tools: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "m", "input": "?", "tools": tools}


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({}, None),
        ({"thinking": {"type": "disabled"}}, {"effort": "none"}),
        ({"thinking": {"type": "adaptive"}}, {"summary": "auto"}),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, None),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
            {"effort": "low", "summary": "auto"},
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 10_000}},
            {"effort": "medium", "summary": "auto"},
        ),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 60_000}},
            {"effort": "high", "summary": "auto"},
        ),
        ({"output_config": {"effort": "max"}}, {"effort": "max"}),
    ],
)
def test_a_thinking_budget_becomes_an_effort(fields, reasoning):
    request, lost = of_claude(**fields)
    assert request.reasoning == reasoning
    assert lost == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"thinking": {"type": "enabled", "budget_tokens": "1024"}},
            "thinking.budget_tokens",
        ),
        ({"reasoning": {"effort": {"a": 1}}}, "reasoning.effort"),
        ({"reasoning": {"effort": ["low"]}}, "reasoning.effort"),
        ({"reasoning": {"effort": 5}}, "reasoning.effort"),
        ({"output_config": {"effort": True}}, "output_config.effort"),
    ],
)
def test_a_wrong_value_in_a_field_of_another_api_is_refused(fields, param):
    """The checks of the client's API do not know the field."""
    with pytest.raises(BadRequest) as caught:
        portable(chat_request.request_of({**REQUEST, **fields}))
    assert caught.value.param == param


def test_an_effort_of_another_api_is_read():
    body = {**REQUEST, "reasoning": {"effort": "minimal"}, "thinking": {"type": 1}}
    request, _ = portable(chat_request.request_of(body))
    assert request.reasoning == {"effort": "minimal"}


def test_a_json_format_is_portable():
    form = {"type": "json_schema", "schema": SCHEMA}
    request, _ = of_claude(output_config={"format": form})
    assert request.text == {
        "format": {
            "type": "json_schema",
            "name": "answer",
            "schema": SCHEMA,
            "strict": True,
        }
    }


def test_provider_specific_fields_are_dropped_and_named():
    request, lost = of_claude(top_k=5, context_management={}, stream=True)
    assert lost == ["top_k", "context_management"]
    assert request.extra == {}
    body = {**REQUEST, "user": "u1", "store": True, "stream_options": {}}
    request, lost = portable(chat_request.request_of(body))
    assert (request.safety_identifier, lost, request.extra) == ("u1", [], {})


def test_a_long_user_id_leaves_as_its_hash():
    named, _ = of_claude(metadata={"user_id": "u" * 64})
    assert named.safety_identifier == "u" * 64
    claude_code = '{"device_id":"' + "0" * 64 + '","account_uuid":""}'
    hashed, _ = of_claude(metadata={"user_id": claude_code})
    assert hashed.safety_identifier == sha256(claude_code.encode()).hexdigest()


def test_claude_codes_line_for_anthropic_does_not_reach_other_hosts():
    line = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197"}
    rule = {"type": "text", "text": "Be brief."}
    request, lost = of_claude(system=[line, rule])
    assert [item["role"] for item in request.items] == ["system", "user"]
    assert request.items[0]["content"][0]["text"] == "Be brief."
    assert lost == []
