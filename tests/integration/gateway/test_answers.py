"""The same models through three APIs, by those APIs' own clients."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from tests import openresponses
from tests.integration.gateway.programs import CHECK, FAST, WEATHER, Gateway, text_of

COUNTED = ", ".join(map(str, range(1, 41)))
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": WEATHER},
}
OWN = {"type": "parley:tools", "names": ["calculator"]}


class Card(BaseModel):
    city: str
    population: int


def user(text: str) -> Any:
    return {"role": "user", "content": text}


# Chat Completions


def test_chat_answers_whole_and_in_pieces_alike(gateway: Gateway):
    request_body: Any = {"model": FAST, "messages": [user("Count from 1 to 40")]}
    whole = gateway.openai().chat.completions.create(**request_body)
    assert whole.choices[0].message.content == COUNTED
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage
    assert whole.usage.total_tokens > 0

    chunks = list(gateway.openai().chat.completions.create(**request_body, stream=True))
    text = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert text == COUNTED
    assert len({chunk.id for chunk in chunks}) == 1
    assert not any(chunk.usage for chunk in chunks)


def test_an_empty_answer_is_streamed_as_one(gateway: Gateway):
    request_body: Any = {"model": FAST, "stream": True}
    chat = {**request_body, "max_tokens": 9, "messages": [user("/echo")]}
    *_, end, done = gateway.stream("/chat/completions", chat)
    assert end.json()["choices"][0]["finish_reason"] == "stop"
    assert done.data == b"[DONE]"
    for store in (False, True):
        stored = {**request_body, "store": store, "input": "/echo"}
        *_, over, _done = gateway.stream("/responses", stored)
        assert over.json()["response"]["status"] == "completed"
    *_, over = gateway.stream("/messages", chat)
    assert over.json() == {"type": "message_stop"}


def test_a_chat_stream_ends_with_requested_usage_and_done(gateway: Gateway):
    frames = list(
        gateway.stream(
            "/chat/completions",
            {
                "model": FAST,
                "messages": [user("Reply with exactly: hi")],
                "stream_options": {"include_usage": True},
            },
        )
    )
    assert frames[-1].data == b"[DONE]"
    usage = frames[-2].json()
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] > 0


def test_a_client_s_function_comes_back_to_it_and_its_output_is_understood(
    gateway: Gateway,
):
    chat = gateway.openai().chat.completions
    messages = [user("What is the weather in Paris?")]
    tools: Any = [CHAT_TOOL]
    first = chat.create(model=FAST, messages=messages, tools=tools).choices[0]
    assert first.finish_reason == "tool_calls"
    [call] = first.message.tool_calls or []
    assert json.loads(call.function.arguments)["city"] == "Paris"
    output = {"role": "tool", "tool_call_id": call.id, "content": "18 degrees, sunny"}
    messages += [first.message, output]
    last = chat.create(model=FAST, messages=messages, tools=tools).choices[0]
    assert "18 degrees" in (last.message.content or "")


def test_a_structured_answer_parses(gateway: Gateway):
    parsed = gateway.openai().chat.completions.parse(
        model=FAST, messages=[user("Describe Paris")], response_format=Card
    )
    assert isinstance(parsed.choices[0].message.parsed, Card)


# Messages


def test_messages_answer_whole_and_in_pieces_alike(gateway: Gateway):
    request_body: Any = {"model": FAST, "max_tokens": 500}
    request_body["messages"] = [user("Count from 1 to 40")]
    client = gateway.anthropic()
    whole = client.messages.create(**request_body)
    assert "".join(b.text for b in whole.content if b.type == "text") == COUNTED
    assert whole.stop_reason == "end_turn"
    with client.messages.stream(**request_body) as stream:
        assert "".join(stream.text_stream) == COUNTED
        assert stream.get_final_message().usage.output_tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_message_names_the_stop_sequence_that_ended_it(
    gateway: Gateway, stream: bool
):
    request_body: Any = {
        "model": FAST,
        "max_tokens": 500,
        "messages": [user("Reply with exactly: one two three")],
        "stop_sequences": ["never", " two"],
    }
    client = gateway.anthropic()
    if stream:
        with client.messages.stream(**request_body) as live:
            message = live.get_final_message()
    else:
        message = client.messages.create(**request_body)
    assert message.stop_reason == "stop_sequence"
    assert message.stop_sequence == " two"
    assert "".join(b.text for b in message.content if b.type == "text") == "one"


def test_reasoning_can_be_requested_from_any_model(gateway: Gateway):
    message = gateway.anthropic().messages.create(
        model=FAST,
        max_tokens=4000,
        thinking={"type": "enabled", "budget_tokens": 2000},
        messages=[user("Reply with exactly: hi")],
    )
    assert [block.type for block in message.content] == ["thinking", "text"]


def test_a_buffered_response_lets_the_sdk_send_everything(gateway: Gateway):
    answer = gateway.post(
        "/messages?beta=true",
        {
            "model": FAST,
            "max_tokens": 9,
            "messages": [user("hi")],
            "thread": {"type": "continue", "previous_message_id": "msg_1"},
        },
    )
    assert answer.status_code == 404
    details = answer.json()["error"]["details"]
    assert details == {"error_code": "thread_not_found"}


def test_tokens_are_counted(gateway: Gateway):
    messages = [user("hello there")]
    counted = gateway.anthropic().messages.count_tokens(model=FAST, messages=messages)
    assert counted.input_tokens > 0
    answer = gateway.post("/responses/input_tokens", {"model": FAST, "input": "hello"})
    assert answer.json()["object"] == "response.input_tokens"
    assert answer.json()["input_tokens"] > 0
    assert answer.headers["x-parley-token-count"] == "estimate"


# Responses


@pytest.mark.parametrize("store", [False, True])
def test_every_event_is_as_the_standard_has_it(gateway: Gateway, store: bool):
    body = {
        "model": FAST,
        "input": "What is 12*7+3?",
        "store": store,
        "tools": [CHECK, OWN],
        "reasoning": {"effort": "low"},
        "metadata": {"a": "b"},
        "text": {"verbosity": "low"},
    }
    frames = list(gateway.stream("/responses", body))
    assert frames[-1].data == b"[DONE]"
    events = [frame.json() for frame in frames[:-1]]
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert [frame.event for frame in frames[:-1]] == [e["type"] for e in events]
    for event in events:
        assert openresponses.problems(event) == [], event
    response = events[-1]["response"]
    assert response["status"] == "completed"
    assert response["store"] is store
    assert response["metadata"] == {"a": "b"}
    assert [tool["name"] for tool in response["tools"]] == ["check_stock"]
    shown = {item["type"] for item in response["output"]}
    assert shown == {"reasoning", "message"}  # our own tool's work is ours


@pytest.mark.parametrize("store", [False, True])
def test_a_whole_response_is_what_its_stream_ends_with(gateway: Gateway, store: bool):
    request_body = {"model": FAST, "input": "Count from 1 to 40", "store": store}
    whole = gateway.respond(**{k: v for k, v in request_body.items() if k != "model"})
    *_, last, _ = gateway.stream("/responses", request_body)
    streamed = last.json()["response"]
    assert text_of(whole) == text_of(streamed) == COUNTED
    volatile = {"id", "created_at", "completed_at", "output", "conversation"}
    assert {k: v for k, v in whole.items() if k not in volatile} == {
        k: v for k, v in streamed.items() if k not in volatile
    }


@pytest.mark.parametrize("store", [False, True])
def test_our_tools_run_inside_the_call_and_the_client_s_come_back(
    gateway: Gateway, store: bool
):
    both = gateway.respond(
        "What is 12*7+3? Then use check_stock.", store=store, tools=[CHECK, OWN]
    )
    calls = [i["name"] for i in both["output"] if i["type"] == "function_call"]
    assert "calculator" not in calls
    ours = gateway.respond("What is 12*7+3?", store=store, tools=[OWN])
    assert "87" in text_of(ours)
    assert {item["type"] for item in ours["output"]} == {"message"}


@pytest.mark.parametrize("store", [False, True])
def test_receipts_list_what_server_tools_did(gateway: Gateway, store: bool):
    response = gateway.respond(
        "What is 12*7+3?", store=store, tools=[OWN], parley={"receipts": True}
    )
    kinds = [item["type"] for item in response["output"]]
    assert kinds[-3:] == ["function_call", "function_call_output", "message"]


@pytest.mark.parametrize("store", [False, True])
def test_all_server_tools_may_be_offered_and_few_called(gateway: Gateway, store: bool):
    question = "What is the weather in Paris, and what time is it there?"
    request_body: Any = {"store": store, "tools": [{"type": "parley:tools"}]}
    request_body["parley"] = {"receipts": True}

    def outputs(**fields: Any) -> list[str]:
        response = gateway.respond(question, **request_body, **fields)
        assert response["max_tool_calls"] == fields.get("max_tool_calls")
        kind = "function_call_output"
        return [item["output"] for item in response["output"] if item["type"] == kind]

    free = outputs()
    assert len(free) == 2
    assert not any(output.startswith("Error") for output in free)
    first, second, *others = outputs(max_tool_calls=1)
    assert first == free[0]
    refusal = "Error: the limit of this response is reached: 'max_tool_calls' is 1."
    assert second == refusal
    assert all(other == refusal for other in others)


def test_a_chat_client_never_sees_a_call_of_ours(gateway: Gateway):
    chunks = gateway.openai().chat.completions.create(
        model=FAST,
        messages=[user("What is 12*7+3?")],
        tools=[OWN],
        stream=True,
    )
    choices = [chunk.choices[0] for chunk in chunks]
    assert not any(choice.delta.tool_calls for choice in choices)
    assert "87" in "".join(choice.delta.content or "" for choice in choices)
    assert choices[-1].finish_reason == "stop"


def test_unknown_fields_of_agents_are_ignored(gateway: Gateway):
    answer = gateway.post(
        "/responses",
        {
            "model": FAST,
            "input": "Reply with exactly: hi",
            "store": False,
            "client_metadata": {"a": 1},
            "context_management": [{"type": "compaction"}],
            "tools": [
                {"type": "namespace", "name": "x", "tools": []},
                {"type": "web_search"},
            ],
            "include": ["reasoning.encrypted_content"],
        },
    )
    assert answer.status_code == 200, answer.text
    assert text_of(answer.json()) == "hi"
    assert "tools (web_search)" in answer.headers["x-parley-degraded"]


# Models


def test_both_families_of_sdks_read_the_list_of_models(gateway: Gateway):
    assert FAST in [model.id for model in gateway.openai().models.list()]
    assert gateway.openai().models.retrieve(FAST).id == FAST
    found = [model for model in gateway.anthropic().models.list() if model.id == FAST]
    assert found[0].type == "model"
    assert gateway.anthropic().models.retrieve(f"demo/{FAST}").id == f"demo/{FAST}"


# Compaction


def test_a_compacted_conversation_can_be_continued(gateway: Gateway):
    spoken = [user("My name is Ada."), {"role": "assistant", "content": "Hi."}]
    answer = gateway.post("/responses/compact", {"model": FAST, "input": spoken})
    assert answer.status_code == 200, answer.text
    compacted = answer.json()
    assert compacted["object"] == "response.compaction"
    [item] = compacted["output"]
    assert item["type"] == "compaction"
    assert "Ada" not in item["encrypted_content"]
    response = gateway.respond([item, user("Reply with exactly: hi")], store=False)
    assert text_of(response) == "hi"


def test_a_compaction_item_of_another_user_is_refused(gateway: Gateway):
    item = {"type": "compaction", "encrypted_content": "f1:gAAAA"}
    answer = gateway.post("/responses", {"model": FAST, "input": [item, user("hi")]})
    assert answer.status_code == 400
    assert "was not made by this server for you" in answer.json()["error"]["message"]
