from __future__ import annotations

from typing import Any

import pytest

from llm.providers import all_providers
from llm.wire.forwarding.forwarded_body import ForwardedBody
from llm.wire.request import Request

CALL = {
    "type": "custom_tool_call",
    "call_id": "xs_1",
    "name": "x_search",
    "input": "{}",
}
OUTPUT = {"type": "custom_tool_call_output", "call_id": "xs_1", "output": "found"}
SAID = {"role": "user", "content": "Hi"}


def sent(kind: str, *items: Any, **fields: Any) -> list[Any]:
    codec: Any = all_providers()[kind].codec("openai_responses")
    body = ForwardedBody(
        api="openai_responses",
        fields={"input": [SAID, *items], **fields},
        convert=lambda route: None,
    )
    items = codec.forward(Request(model="m", items=(), forwarded=body))["input"]
    return list(items)[1:]


def test_other_hosts_get_no_calls_of_xais_tools():
    assert sent("openai", CALL) == []
    assert sent("xai", CALL) == [CALL]


def test_calls_of_the_clients_own_tools_stay():
    tool = {"type": "custom", "name": "x_search"}
    assert sent("openai", CALL, tools=[tool]) == [CALL]
    assert sent("openai", CALL, OUTPUT) == [CALL, OUTPUT]


@pytest.mark.parametrize("odd", [7, {}, {"type": "custom_tool_call_output"}])
def test_odd_items_are_for_the_host_to_judge(odd: Any):
    assert sent("openai", CALL, odd) == [odd]
