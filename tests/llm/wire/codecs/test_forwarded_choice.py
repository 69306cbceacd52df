from __future__ import annotations

from typing import Any

import pytest

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
