from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from llm.demo.api_interface import Wire
from llm.demo.chat import ChatWire
from llm.demo.problem import Problem
from llm.demo.responses import ResponsesWire
from llm.demo.script import script_for
from llm.wire.sse import SSEDecoder

MODEL = "demo-fast"
ANY_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
BOTH = "What is the weather in Paris, and what time is it there?"


def function(name: str, property: str) -> dict:
    schema = {
        "type": "object",
        "properties": {property: {"type": "string"}},
        "required": [property],
    }
    return {"type": "function", "name": name, "parameters": schema}


TOOLS = [
    function("weather_demo", "city"),
    function("current_time", "timezone"),
    function("calculator", "expression"),
]
CHAT_TOOLS = [{"type": "function", "function": {**tool}} for tool in TOOLS]
FORMAT = {
    "name": "card",
    "schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "size": {"type": "integer"}},
        "required": ["city", "size"],
        "additionalProperties": False,
    },
}


CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
HELLO = {"role": "user", "content": "Hello"}
CHAT_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "f", "arguments": "{}"},
        }
    ],
}
CHAT_OUTPUT = {"role": "tool", "tool_call_id": "call_1", "content": "done"}


def whole(wire: type[Wire], body: dict) -> Any:
    wire_request = wire({"model": MODEL, **body})
    return wire_request.response_body(script_for(wire_request.prompt))


def streamed(wire: type[Wire], body: dict) -> list[Any]:
    wire_request = wire({"model": MODEL, "stream": True, **body})
    frames = wire_request.frames(script_for(wire_request.prompt))
    sent = SSEDecoder().feed(b"".join(frame.data for frame in frames))
    if sent[-1].data == b"[DONE]":
        assert wire is ChatWire
        sent.pop()
    else:
        assert [event.event for event in sent] == [e.json()["type"] for e in sent]
    return [event.json() for event in sent]


def answer(question: Any, **more) -> Any:
    return whole(ResponsesWire, {"input": question, **more})


# Both wires have the same content

CASES = {
    "text": {"question": "Hello"},
    "nothing": {"question": "/echo"},
    "unicode": {"question": "/echo 👩‍🚀 日本語, ελληνικά\u2028 <b>&\n\n  x  "},
    "markdown": {"question": "/markdown"},
    "two calls": {"question": BOTH, "tools": True},
    "one call": {"question": "What is 12*7+3?", "tools": True},
    "one at a time": {"question": BOTH, "tools": True, "parallel_tool_calls": False},
    "no call": {"question": BOTH, "tools": True, "tool_choice": "none"},
    "a call at any price": {"question": "Hi", "tools": True, "tool_choice": "required"},
    "thinking": {"question": "/think Count to 3"},
    "effort": {"question": BOTH, "tools": True, "effort": "high"},
    "no effort": {"question": "Hello", "effort": "none"},
    "too long": {"question": "/think Count to 99", "limit": 40},
    "call too long": {"question": "What is 1+1?", "tools": True, "limit": 10},
    "instructions": {"question": "Hello", "instructions": "Be kind."},
    "schema": {"question": "Hello", "format": "json_schema"},
    "object": {"question": "Hello", "format": "json_object"},
}
COMMON = ("parallel_tool_calls", "tool_choice")


def responses_body(case: dict) -> dict:
    body = {"input": case["question"], **{n: case[n] for n in COMMON if n in case}}
    if "tools" in case:
        body["tools"] = TOOLS
    if "effort" in case:
        body["reasoning"] = {"effort": case["effort"]}
    if "limit" in case:
        body["max_output_tokens"] = case["limit"]
    if "instructions" in case:
        body["instructions"] = case["instructions"]
    if "format" in case:
        more = FORMAT if case["format"] == "json_schema" else {}
        body["text"] = {"format": {"type": case["format"], **more}}
    return body


def chat_body(case: dict) -> dict:
    messages = [{"role": "user", "content": case["question"]}]
    body = {n: case[n] for n in COMMON if n in case}
    body["stream_options"] = {"include_usage": True}
    if "tools" in case:
        body["tools"] = CHAT_TOOLS
    if "effort" in case:
        body["reasoning_effort"] = case["effort"]
    if "limit" in case:
        body["max_completion_tokens"] = case["limit"]
    if "instructions" in case:
        messages.insert(0, {"role": "system", "content": case["instructions"]})
    if "format" in case:
        more = {"json_schema": FORMAT} if case["format"] == "json_schema" else {}
        body["response_format"] = {"type": case["format"], **more}
    return {**body, "messages": messages}


def summary_of_response(response: dict) -> dict:
    items, usage = response["output"], response["usage"]
    reason = (response["incomplete_details"] or {}).get("reason")
    return {
        "thoughts": [
            "\n\n".join(part["text"] for part in item["summary"])
            for item in items
            if item["type"] == "reasoning"
        ],
        "text": "".join(
            item["content"][0]["text"] for item in items if item["type"] == "message"
        ),
        "calls": [
            (item["name"], item["arguments"])
            for item in items
            if item["type"] == "function_call"
        ],
        "short": reason == "max_output_tokens",
        "usage": (
            usage["input_tokens"],
            usage["output_tokens"],
            usage["output_tokens_details"]["reasoning_tokens"],
            usage["total_tokens"],
        ),
    }


def summary_of_completion(completion: dict) -> dict:
    choice, usage = completion["choices"][0], completion["usage"]
    message = choice["message"]
    calls = [call["function"] for call in message.get("tool_calls", ())]
    thoughts = message.get("reasoning_content")
    return {
        "thoughts": [thoughts] if thoughts else [],
        "text": message["content"] or "",
        "calls": [(call["name"], call["arguments"]) for call in calls],
        "short": choice["finish_reason"] == "length",
        "usage": (
            usage["prompt_tokens"],
            usage["completion_tokens"],
            usage["completion_tokens_details"]["reasoning_tokens"],
            usage["total_tokens"],
        ),
    }


def put_together(chunks: list[dict]) -> dict:
    """The completion that a stream of chunks amounts to."""
    message = {"content": "", "tool_calls": [], "reasoning_content": ""}
    finish = None
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta, finish = choice["delta"], choice["finish_reason"] or finish
            message["content"] += delta.get("content", "")
            message["reasoning_content"] += delta.get("reasoning_content", "")
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    message["tool_calls"].append({"function": {**call["function"]}})
                else:
                    known = message["tool_calls"][call["index"]]["function"]
                    known["arguments"] += call["function"]["arguments"]
    choice = {"message": message, "finish_reason": finish}
    return {"choices": [choice], "usage": chunks[-1]["usage"]}


over_all_cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@over_all_cases
def test_both_wires_have_the_same_content_streamed_or_not(case):
    expected = summary_of_response(whole(ResponsesWire, responses_body(case)))
    events = streamed(ResponsesWire, responses_body(case))
    assert summary_of_response(events[-1]["response"]) == expected
    assert summary_of_completion(whole(ChatWire, chat_body(case))) == expected
    chunks = streamed(ChatWire, chat_body(case))
    assert summary_of_completion(put_together(chunks)) == expected


@over_all_cases
def test_every_event_and_object_matches_the_vendors_types(case):
    events = streamed(ResponsesWire, responses_body(case))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    for event in events:
        ANY_EVENT.validate_python(event)
    Response.model_validate(events[-1]["response"])
    for chunk in streamed(ChatWire, chat_body(case)):
        ChatCompletionChunk.model_validate(chunk)
    ChatCompletion.model_validate(whole(ChatWire, chat_body(case)))


@over_all_cases
def test_the_deltas_of_a_stream_add_up_to_its_items(case):
    events = streamed(ResponsesWire, responses_body(case))
    joined: dict[tuple[str, int], str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            key = (event["item_id"], event.get("summary_index", 0))
            joined[key] = joined.get(key, "") + event["delta"]
    for item in events[-1]["response"]["output"]:
        texts = texts_of(item)
        assert [joined.get((item["id"], i), "") for i in range(len(texts))] == texts


def texts_of(item: dict) -> list[str]:
    match item["type"]:
        case "reasoning":
            return [part["text"] for part in item["summary"]]
        case "message":
            return [item["content"][0]["text"]]
    return [item["arguments"]]


def test_the_same_request_gets_the_same_answer_with_the_same_ids():
    body = {"input": "/think Hello", "include": ["reasoning.encrypted_content"]}
    first, again = [
        streamed(ResponsesWire, body)[-1]["response"]["output"] for _ in range(2)
    ]
    assert first == again == whole(ResponsesWire, body)["output"]


@pytest.mark.parametrize("kind", ["json_schema", "json_object"])
def test_a_structured_answer_is_json(kind):
    response = whole(
        ResponsesWire, responses_body({"question": "Hello", "format": kind})
    )
    assert isinstance(json.loads(response["output"][0]["content"][0]["text"]), dict)


def test_usage_is_in_a_chat_stream_only_on_request():
    chunks = streamed(ChatWire, {"messages": [HELLO]})
    assert not any("usage" in chunk for chunk in chunks)


# Proofs and histories


def test_a_proof_comes_on_request_and_fits_only_its_text():
    include = {"include": ["reasoning.encrypted_content"]}
    question = {"role": "user", "content": "/think Hello"}
    sent = streamed(ResponsesWire, {"input": [question], **include})
    added = next(e for e in sent if e["type"] == "response.output_item.added")
    thought, answer_item = sent[-1]["response"]["output"]
    assert added["item"]["encrypted_content"] != thought["encrypted_content"]
    history = [question, thought, answer_item, {"role": "user", "content": "Hello"}]
    assert (answer(history))["status"] == "completed"
    thought["summary"][0]["text"] += " and more"
    with pytest.raises(Problem) as caught:
        answer(history)
    assert caught.value.error["code"] == "invalid_encrypted_content"
    without = answer("/think Hello")
    assert "encrypted_content" not in without["output"][0]


@pytest.mark.parametrize(
    ("items", "error_text"),
    [
        ([HELLO, CALL], "No tool output found for function call call_1."),
        ([HELLO, OUTPUT], "No tool call found"),
        ([HELLO, OUTPUT, CALL], "No tool call found"),
        ([{"role": "user"}], "Invalid value for 'input'"),
        ([{"type": "message", "role": "nobody", "content": ""}], "Invalid value"),
        (42, "Invalid value for 'input'."),
    ],
)
def test_a_history_that_does_not_add_up_is_refused(items, error_text):
    with pytest.raises(Problem, match=f"^{re.escape(error_text)}") as caught:
        answer(items)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("messages", "error_text"),
    [
        ([HELLO, CHAT_CALL], "An assistant message with 'tool_calls' must be followed"),
        ([HELLO, CHAT_CALL, HELLO, CHAT_OUTPUT], "An assistant message with"),
        ([HELLO, CHAT_OUTPUT], "messages with role 'tool' must be a response"),
        ([{"role": "user", "content": None}], "A message needs 'content'."),
        ([{"content": "x"}], "Missing required parameter: 'messages[0].role'."),
        ([], "Invalid value for 'messages'."),
    ],
)
def test_chat_messages_that_do_not_add_up_are_refused(messages, error_text):
    with pytest.raises(Problem, match=f"^{re.escape(error_text)}") as caught:
        whole(ChatWire, {"messages": messages})
    assert caught.value.status == 400


def test_items_of_unknown_types_may_come_back():
    items = [{"type": "web_search_call", "id": "ws_1", "output": None}, HELLO]
    assert (answer(items))["status"] == "completed"


# Nonsense

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
FIELDS = [
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "max_tokens",
    "reasoning",
    "text",
    "response_format",
    "include",
    "instructions",
    "stream",
    "stream_options",
    "reasoning_effort",
]
LIKELY = st.sampled_from(
    [
        [HELLO, CALL, OUTPUT],
        [HELLO, CHAT_CALL, CHAT_OUTPUT],
        TOOLS,
        CHAT_TOOLS,
        {"type": "function"},
        {"type": "allowed_tools", "tools": [{}, None], "mode": "required"},
        {"format": {"type": "json_schema", "name": "", "schema": {"type": 1}}},
        {"type": "json_schema", "json_schema": {"name": "", "schema": {}}},
    ]
)


@given(
    st.sampled_from([(ResponsesWire, "input"), (ChatWire, "messages")]),
    JSON | LIKELY | st.lists(st.sampled_from([HELLO, CALL, OUTPUT, CHAT_CALL]) | JSON),
    st.dictionaries(st.sampled_from(FIELDS), JSON | LIKELY),
)
def test_whatever_is_sent_is_answered_or_refused(kind, given_input, options):
    wire, field = kind
    with contextlib.suppress(Problem):
        wire_request = wire({"model": MODEL, **options, field: given_input})
        script = script_for(wire_request.prompt)
        orjson.dumps(wire_request.response_body(script))
        assert list(wire_request.frames(script))
