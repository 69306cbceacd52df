"""Every answer and event as Open Responses has it, whatever wire the model's host
speaks; and each case of the standard's own compliance suite.

Source of the cases: https://www.openresponses.org/compliance
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from llm.wire.facades import responses_request
from llm.wire.facades.body_checks import check_responses
from llm.wire.facades.responses_request import echo_of
from llm.wire.response_builder import ResponseBuilder
from tests import openresponses
from tests.integration.gateway.programs import Gateway, events_of, text_of
from tests.integration.gateway.wires import LOOK, MODELS, TOOL_PROMPT, Hosts

FAST = MODELS["openai_responses"]
EVERY_WIRE = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
BOTH_STORES = pytest.mark.parametrize("store", [False, True], ids=["unkept", "kept"])
HEART = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42"
    "mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The city"}},
        "required": ["location"],
    },
}

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
UNNAMED = {"schema": SCHEMA, "description": "A card"}
SAY = {"type": "custom", "name": "say"}
ALLOWED = {
    "type": "allowed_tools",
    "tools": [{"type": "function", "name": "get_weather"}],
}


@pytest.fixture(scope="module")
def hosts(gateway: Gateway) -> Iterator[Hosts]:
    with Hosts() as hosts:
        hosts.teach(gateway)
        yield hosts
        hosts.forget(gateway)


def message_item(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": content, **fields}


def respond(gateway: Gateway, input: Any, **fields: Any) -> dict[str, Any]:
    return gateway.respond(input, **{"model": FAST, **fields})


def checked(response: dict[str, Any]) -> dict[str, Any]:
    assert openresponses.problems_of("ResponseResource", response) == []
    return response


def streamed(gateway: Gateway, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The events, each as the standard has it, in order."""
    frames = list(gateway.stream("/responses", body))
    assert frames[-1].data == b"[DONE]"
    events = [frame.json() for frame in frames[:-1]]
    assert [frame.event for frame in frames[:-1]] == [each["type"] for each in events]
    return in_order(events)


def in_order(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for event in events:
        assert openresponses.problems(event) == [], event
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    checked(events[-1]["response"])
    return events


async def turn(socket: Any, **body: Any) -> list[dict[str, Any]]:
    fields = {"type": "response.create", "model": FAST, "store": False, **body}
    await socket.send(json.dumps(fields))
    return [event async for event in events_of(socket)]


def refused(events: list[dict[str, Any]]) -> dict[str, Any]:
    [event] = events
    assert openresponses.problems_of("WebSocketErrorEvent", event) == []
    return event["error"]


def kinds(response: dict[str, Any]) -> list[str]:
    """Without the proofs of an answer with calls, which are an item at its end."""
    found = [item["type"] for item in response["output"]]
    return found[:-1] if found[-2:] == ["function_call", "reasoning"] else found


def test_the_schemas_that_we_carry_are_the_standard_s():
    if not openresponses.SPECIFICATION.exists():
        pytest.skip("the specification is not here; set OPENRESPONSES_DIR")
    published = openresponses.published()
    carried = openresponses.SCHEMAS
    assert carried == {name: published[name] for name in carried}


# Every wire


@EVERY_WIRE
@BOTH_STORES
def test_every_answer_and_event_over_http(
    gateway: Gateway, hosts: Hosts, model: str, store: bool
):
    fields: dict[str, Any]
    for fields in ({"input": "Reply with exactly: Hello"}, called()):
        whole = checked(respond(gateway, **fields, model=model, store=store))
        events = streamed(gateway, {**fields, "model": model, "store": store})
        last = events[-1]["response"]
        assert kinds(last) == kinds(whole)
        assert text_of(last) == text_of(whole)
    assert kinds(whole) == ["reasoning", "message", "function_call"]


@EVERY_WIRE
@BOTH_STORES
async def test_every_event_over_a_websocket(
    gateway: Gateway, hosts: Hosts, model: str, store: bool
):
    async with gateway.socket() as socket:
        for fields in ({"input": "Reply with exactly: Hello"}, called()):
            events = in_order(await turn(socket, **fields, model=model, store=store))
    assert kinds(events[-1]["response"]) == ["reasoning", "message", "function_call"]


@EVERY_WIRE
@BOTH_STORES
def test_a_call_that_is_not_allowed_never_reaches_the_client(
    gateway: Gateway, hosts: Hosts, model: str, store: bool
):
    """Two of these hosts call `look` whatever the request is."""
    fields = {
        **called(),
        "model": model,
        "store": store,
        "tools": [LOOK, WEATHER],
        "tool_choice": {**ALLOWED, "mode": "auto"},
    }
    whole = checked(respond(gateway, **fields))
    last = streamed(gateway, fields)[-1]["response"]
    for response in (whole, last):
        assert "look" not in [item.get("name") for item in response["output"]]


@BOTH_STORES
def test_a_model_of_functions_or_search_is_not_given_both(
    gateway: Gateway, hosts: Hosts, store: bool
):
    """Agents offer all they know to every model."""
    old = "Provider.objects.get(name='gemini-host').models"
    gateway.rows(f"{old}.get_or_create(name='gemini-2.5-flash')")
    body = {"model": "gemini-host/gemini-2.5-flash", "store": store, **called()}
    body["tools"] = [LOOK, {"type": "web_search"}]
    answer = gateway.post("/responses", body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-parley-degraded"] == "tools (web_search)"
    assert kinds(checked(answer.json())) == ["reasoning", "message", "function_call"]


@pytest.mark.parametrize(
    # The body is forwarded, so the host itself refuses what its version has not.
    ("version", "status"),
    [("2023-06-01", 200), ("2026-10-21", 200)],
)
def test_a_client_of_an_older_messages_version_gets_its_features(
    gateway: Gateway, hosts: Hosts, version: str, status: int
):
    """litellm and aider send a temperature to every model."""
    body = {
        "model": MODELS["anthropic"],
        "max_tokens": 50,
        "temperature": 0,
        "messages": [{"role": "user", "content": "Hi"}],
    }
    answer = gateway.post("/messages", body, **{"anthropic-version": version})
    assert answer.status_code == status, answer.text


@BOTH_STORES
def test_a_call_of_an_undeclared_function_goes_to_the_client(
    gateway: Gateway, hosts: Hosts, store: bool
):
    response = respond(
        gateway,
        **{**called(), "model": MODELS["gemini"], "tools": [WEATHER], "store": store},
    )
    assert kinds(response) == ["reasoning", "message", "function_call"]
    assert response["status"] == "completed"


def called() -> dict[str, Any]:
    return {"input": TOOL_PROMPT, "tools": [LOOK], "reasoning": {"effort": "low"}}


# The compliance suite: one test for each of its cases


def test_basic_response(gateway: Gateway):
    response = checked(
        respond(gateway, [message_item("user", "Say hello in exactly 3 words.")])
    )
    assert response["status"] == "completed"
    assert response["output"]


def test_streaming_response(gateway: Gateway):
    body = {"model": FAST, "input": [message_item("user", "Count from 1 to 5.")]}
    assert streamed(gateway, body)[-1]["type"] == "response.completed"


def test_assistant_phase(gateway: Gateway):
    history = [
        message_item(
            "assistant", "I should answer with the number.", phase="commentary"
        ),
        message_item("assistant", "The number is four.", phase="final_answer"),
        message_item("user", "Repeat only the number."),
    ]
    assert checked(respond(gateway, history))["status"] == "completed"


def test_system_prompt(gateway: Gateway):
    messages = [
        message_item("system", "You are a pirate."),
        message_item("user", "Say hello."),
    ]
    assert checked(respond(gateway, messages))["status"] == "completed"


def test_tool_calling(gateway: Gateway):
    fields = [message_item("user", "What's the weather like in San Francisco?")]
    assert "function_call" in kinds(checked(respond(gateway, fields, tools=[WEATHER])))
    body = {"model": FAST, "input": fields, "tools": [WEATHER]}
    types = {event["type"] for event in streamed(gateway, body)}
    assert "response.function_call_arguments.delta" in types
    assert "response.function_call_arguments.done" in types


def test_a_function_call_and_its_output(gateway: Gateway):
    choice = {"type": "function", "name": "get_weather"}
    text = "Use the weather tool to get the temperature in San Francisco."
    first = checked(respond(gateway, text, tools=[WEATHER], tool_choice=choice))
    [call] = [i for i in first["output"] if i["type"] == "function_call"]
    output = {
        "type": "function_call_output",
        "call_id": call["call_id"],
        "output": "18 degrees",
    }
    input = [message_item("user", text), *first["output"], output]
    last = checked(respond(gateway, input, tools=[WEATHER]))
    assert "18 degrees" in text_of(last)


def test_image_input(gateway: Gateway):
    parts = [
        {"type": "input_text", "text": "What do you see?"},
        {"type": "input_image", "image_url": HEART},
    ]
    assert (
        checked(respond(gateway, [message_item("user", parts)]))["status"]
        == "completed"
    )


def test_multi_turn(gateway: Gateway):
    history = [
        message_item("user", "My name is Alice."),
        message_item("assistant", "Hello Alice! Nice to meet you."),
        message_item("user", "What is my name?"),
    ]
    assert "Alice" in text_of(checked(respond(gateway, history)))


def test_previous_response_id(gateway: Gateway):
    first = checked(respond(gateway, "My name is Alice."))
    last = respond(gateway, "What is my name?", previous_response_id=first["id"])
    assert "Alice" in text_of(checked(last))


def test_compact_response(gateway: Gateway):
    body = {
        "model": FAST,
        "prompt_cache_key": "a-key",
        "input": [
            message_item("user", "We agreed to launch on Tuesday."),
            message_item("assistant", "Understood."),
        ],
    }
    answer = gateway.post("/responses/compact", body)
    assert answer.status_code == 200
    assert openresponses.problems_of("CompactResource", answer.json()) == []
    assert kinds(answer.json()) == ["compaction"]


def test_compact_missing_model(gateway: Gateway):
    body = {"input": [message_item("user", "Compact this conversation.")]}
    assert gateway.post("/responses/compact", body).status_code == 400


async def test_websocket_response(gateway: Gateway):
    async with gateway.socket() as socket:
        fields = [message_item("user", "Count from 1 to 3.")]
        await socket.send(
            json.dumps({"type": "response.create", "model": FAST, "input": fields})
        )
        events = in_order([event async for event in events_of(socket)])
    assert events[-1]["type"] == "response.completed"


async def test_websocket_sequential_responses(gateway: Gateway):
    async with gateway.socket() as socket:
        for word in ("first", "second"):
            events = in_order(await turn(socket, input=f"Reply with exactly: {word}"))
            assert text_of(events[-1]["response"]) == word


async def test_websocket_continuation(gateway: Gateway):
    async with gateway.socket() as socket:
        first = in_order(await turn(socket, input="My name is Cobalt."))[-1]
        events = await turn(
            socket,
            input="What is my name?",
            previous_response_id=first["response"]["id"],
        )
    assert "Cobalt" in text_of(in_order(events)[-1]["response"])


async def test_websocket_reconnect_store_false_recovery(gateway: Gateway):
    async with gateway.socket() as socket:
        first = in_order(await turn(socket, input="Reply with OK."))[-1]
    async with gateway.socket() as socket:
        previous = first["response"]["id"]
        error = refused(
            await turn(socket, input="Go on", previous_response_id=previous)
        )
        assert error["code"] == "previous_response_not_found"
        text = "Reply with exactly: recovered"
        events = in_order(await turn(socket, input=[message_item("user", text)]))
    assert text_of(events[-1]["response"]) == "recovered"


async def test_websocket_previous_response_not_found(gateway: Gateway):
    async with gateway.socket() as socket:
        events = await turn(socket, input="Hi", previous_response_id="resp_missing_1")
    assert refused(events)["code"] == "previous_response_not_found"


async def test_websocket_failed_continuation_evicts_cache(gateway: Gateway):
    """The failing item is the output of an unknown call."""
    output = {"type": "function_call_output", "call_id": "call_none", "output": "x"}
    async with gateway.socket() as socket:
        first = in_order(await turn(socket, input="Reply with OK."))[-1]
        then = {"previous_response_id": first["response"]["id"]}
        assert (
            "'call_none'"
            in refused(await turn(socket, input=[output], **then))["message"]
        )
        error = refused(await turn(socket, input="Reply with exactly: stale", **then))
    assert error["code"] == "previous_response_not_found"


async def test_websocket_compact_new_chain(gateway: Gateway):
    """Parts in lists, as the suite sends them."""
    input = [
        message_item("user", [{"type": "input_text", "text": "The word is slate."}]),
        message_item("assistant", [{"type": "output_text", "text": "OK."}]),
    ]
    body = {"model": FAST, "input": input}
    compacted = gateway.post("/responses/compact", body).json()["output"]
    text = "Continue from here. Reply with exactly: compacted"
    async with gateway.socket() as socket:
        fields = [*compacted, message_item("user", text)]
        events = in_order(await turn(socket, input=fields, tools=[]))
    assert text_of(events[-1]["response"]) == "compacted"


# What a response repeats of its request


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": {"effort": "minimal"}},
        {"reasoning": {"effort": "max", "summary": "concise"}},
        {"reasoning": {}},
        {"text": {"format": {"type": "json_object"}}},
        {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
        {"text": {"format": {"type": "json_schema", "strict": None, **UNNAMED}}},
        {"tools": [WEATHER], "tool_choice": "required"},
        {"tools": [WEATHER], "tool_choice": ALLOWED},
        {"tools": [WEATHER, SAY], "tool_choice": {"type": "custom", "name": "say"}},
        {"tools": [{**WEATHER, "strict": None, "description": None}]},
        {"truncation": "auto", "service_tier": "anything", "metadata": {"a": "b"}},
        {"max_tool_calls": 3, "max_output_tokens": 9, "top_logprobs": 0},
        {"safety_identifier": "a", "prompt_cache_key": "b", "instructions": "c"},
        {"temperature": 1, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 1},
    ],
)
def test_every_echoed_request_field_matches_the_standard(fields: Any):
    body = {"model": "m", "input": "Hi", **fields}
    check_responses(body)
    request = responses_request.request_of(body)
    checked(
        ResponseBuilder(id="resp_1", model="m", echo=echo_of(body, request)).response()
    )


# The suite's case of a lost call, at the other endpoints


@BOTH_STORES
def test_the_output_of_an_unknown_call_is_refused(gateway: Gateway, store: bool):
    first = respond(gateway, "Reply with OK.")
    output = {"type": "function_call_output", "call_id": "call_none", "output": "x"}
    for before in ({}, {"previous_response_id": first["id"]}):
        body = {"model": FAST, "input": [output], "store": store, **before}
        answer = gateway.post("/responses", body)
        assert answer.status_code == 400
        assert "call_none" in answer.json()["error"]["message"]
    alone = gateway.rows(f"Turn.objects.filter(parent='{first['id']}').count()")
    assert alone == "0"


@BOTH_STORES
def test_the_output_of_an_earlier_call_goes_on_from_it(gateway: Gateway, store: bool):
    first = respond(gateway, "/tool get_weather", tools=[WEATHER])
    [call] = [i for i in first["output"] if i["type"] == "function_call"]
    output = {
        "type": "function_call_output",
        "call_id": call["call_id"],
        "output": "18 degrees",
    }
    last = respond(
        gateway,
        [output],
        previous_response_id=first["id"],
        tools=[WEATHER],
        store=store,
    )
    assert "18 degrees" in text_of(last)
