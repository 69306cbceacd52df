from __future__ import annotations

from typing import Any

import pytest

from llm.wire.codecs.anthropic.codec import AnthropicCodec
from llm.wire.codecs.openai_chat.codec import OpenAIChatCodec
from llm.wire.codecs.openai_responses.codec import OpenAIResponsesCodec
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.items import function_call_output
from llm.wire.request import Request

TOOL = {"type": "function", "name": "calculator", "parameters": {"type": "object"}}
CALL = {
    "type": "function_call",
    "call_id": "c1",
    "name": "calculator",
    "arguments": "{}",
    "status": "completed",
}
NAMED = [{"type": "function", "name": "calculator"}]


def choice_after_a_call(codec: Any, entries: str, choice: Any) -> Any:
    """What a host gets once a tool of this server has answered."""
    forwarded = ForwardedBody(
        api=codec.name,
        fields={entries: [{"role": "user", "content": "?"}], "tool_choice": choice},
        convert=lambda route: None,
        own_tools=[TOOL],
        answered=[CALL, function_call_output("c1", "4")],
    )
    body = codec.forward(Request(model="m", items=(), forwarded=forwarded))
    return body["tool_choice"]


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_a_limited_choice_is_free_after_a_call(mode: str):
    """Otherwise every step has to call again, up to the limit of steps."""

    def chosen(mode: str) -> dict[str, Any]:
        return {"mode": mode, "tools": NAMED}

    flat = {"type": "allowed_tools", **chosen(mode)}
    found = choice_after_a_call(OpenAIResponsesCodec(), "input", flat)
    assert found == {"type": "allowed_tools", **chosen("auto")}
    nested = {"type": "allowed_tools", "allowed_tools": chosen(mode)}
    found = choice_after_a_call(OpenAIChatCodec(), "messages", nested)
    assert found == {"type": "allowed_tools", "allowed_tools": chosen("auto")}


USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "4"}
ASKED = {"role": "user", "content": "?"}


def calling(*before: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        ASKED,
        {"role": "assistant", "content": [*before, USE]},
        {"role": "user", "content": [RESULT]},
    ]


def default_thinking(fields: dict[str, Any], model: str = "claude-sonnet-4-5") -> Any:
    """What Claude gets where staff want much thinking and the client says nothing."""
    forwarded = ForwardedBody(
        api="anthropic",
        fields={"messages": [ASKED], "max_tokens": 30_000, **fields},
        convert=lambda route: None,
        defaults={"reasoning": {"effort": "high"}},
    )
    body = AnthropicCodec().forward(Request(model=model, items=(), forwarded=forwarded))
    assert fields.items() <= body.items()
    return body.get("thinking")


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 1000},
        {"max_tokens": 2000},
        {"tool_choice": {"type": "tool", "name": "look"}},
        {"tool_choice": {"type": "any"}},
        {"temperature": 0.2},
        {"top_p": 0.5},
        {"top_k": 3},
        {"messages": calling()},
        {"messages": [ASKED, {"role": "assistant", "content": "Once"}]},
    ],
)
def test_a_default_of_thinking_gives_way_to_the_clients_fields(fields: dict[str, Any]):
    """Claude refuses a budget beside each of them."""
    assert default_thinking(fields) is None


@pytest.mark.parametrize(
    ("fields", "budget"),
    [
        ({}, 16_384),
        ({"max_tokens": 4000}, 2976),
        ({"temperature": 1, "tool_choice": {"type": "auto"}}, 16_384),
        (
            {
                "messages": calling(
                    {"type": "thinking", "thinking": "Hm", "signature": "s"}
                )
            },
            16_384,
        ),
        ({"messages": [*calling(), ASKED]}, 16_384),
    ],
)
def test_a_default_of_thinking_fits_the_clients_limit(
    fields: dict[str, Any], budget: int
):
    assert default_thinking(fields) == {"type": "enabled", "budget_tokens": budget}


def test_thinking_without_a_budget_goes_with_forced_tools_but_no_sampling():
    forced = {"tool_choice": {"type": "any"}, "max_tokens": 1000}
    adaptive = {"type": "adaptive", "display": "summarized"}
    assert default_thinking(forced, "claude-sonnet-4-6") == adaptive
    assert default_thinking({"temperature": 0.2}, "claude-sonnet-4-6") is None
