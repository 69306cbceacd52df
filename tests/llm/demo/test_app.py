from __future__ import annotations

import json
import re

import httpx
import openai
import pytest

from llm.demo.app import MAX_BODY, PACES, DemoApplication
from llm.demo.key import demo_key

MODEL = "demo-fast"
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


@pytest.fixture
async def http():
    transport = httpx.ASGITransport(app=DemoApplication())
    async with httpx.AsyncClient(
        transport=transport,
        base_url="http://demo/demo/v1",
        headers={"Authorization": f"Bearer {demo_key()}"},
    ) as http:
        yield http


@pytest.fixture
def vendor(http) -> openai.AsyncOpenAI:
    """OpenAI's own library, the judge of what we send."""
    return openai.AsyncOpenAI(
        base_url="http://demo/demo/v1",
        api_key=demo_key(),
        http_client=http,
        max_retries=0,
    )


# The vendor's own library reads us


async def test_the_vendors_library_streams_tool_calls_over_responses(vendor):
    async with vendor.responses.stream(model=MODEL, input=BOTH, tools=TOOLS) as stream:
        seen = [event.type async for event in stream]
        final = await stream.get_final_response()
    message, weather, time = final.output
    assert message.content[0].text.startswith("Let me look that up")
    assert (weather.name, json.loads(weather.arguments)) == (
        "weather_demo",
        {"city": "Paris"},
    )
    assert (time.name, json.loads(time.arguments)) == (
        "current_time",
        {"timezone": "Europe/Paris"},
    )
    assert seen.count("response.output_text.delta") > 3
    assert seen[-1] == "response.completed"


async def test_the_vendors_library_streams_tool_calls_over_chat(vendor):
    async with vendor.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": BOTH}], tools=CHAT_TOOLS
    ) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    weather, time = final.choices[0].message.tool_calls
    assert json.loads(weather.function.arguments) == {"city": "Paris"}
    assert json.loads(time.function.arguments) == {"timezone": "Europe/Paris"}
    assert final.choices[0].finish_reason == "tool_calls"


async def test_a_whole_turn_with_the_vendors_own_output_as_input(vendor):
    messages = [{"role": "user", "content": BOTH}]
    options = {"model": MODEL, "tools": TOOLS, "reasoning": {"effort": "high"}}
    options["include"] = ["reasoning.encrypted_content"]
    first = await vendor.responses.create(input=messages, **options)
    outputs = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "fine"}
        for item in first.output
        if item.type == "function_call"
    ]
    second = await vendor.responses.create(
        input=[*messages, *first.output, *outputs], **options
    )
    assert "**Weather in Paris:** fine" in second.output_text
    assert "**Time in Paris:** fine" in second.output_text


async def test_the_vendors_library_lists_the_models(vendor):
    assert [model.id async for model in vendor.models.list()] == list(PACES)
    assert (await vendor.models.retrieve(MODEL)).id == MODEL


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        ("400", openai.BadRequestError),
        ("401", openai.AuthenticationError),
        ("404", openai.NotFoundError),
        ("429", openai.RateLimitError),
        ("500", openai.InternalServerError),
    ],
)
async def test_the_vendors_library_knows_our_failures(vendor, failure, error):
    with pytest.raises(error) as caught:
        await vendor.responses.create(
            model=MODEL, input=f"/fail {failure}", stream=True
        )
    assert caught.value.status_code == int(failure)
    assert caught.value.body.keys() == {"message", "type", "param", "code"}
    assert caught.value.request_id.startswith("req_")


async def test_an_error_inside_the_stream_reaches_the_vendors_library(vendor):
    question = "/fail stream Count from 1 to 40"
    with pytest.raises(openai.APIError, match="told to fail"):
        async for _ in await vendor.responses.create(
            model=MODEL, input=question, stream=True
        ):
            pass
    with pytest.raises(openai.APIError, match="told to fail"):
        async for _ in await vendor.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": question}], stream=True
        ):
            pass
    with pytest.raises(openai.InternalServerError):
        await vendor.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": question}]
        )
    failed = await vendor.responses.create(model=MODEL, input=question)
    assert (failed.status, failed.error.code) == ("failed", "server_error")


# Refusals


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"{bad", 400, None, None),
        (b"[]", 400, "invalid_value", None),
        (b'{"model": "demo"}', 400, "missing_required_parameter", "input"),
        (b'{"model": 1, "input": ""}', 400, "invalid_value", "model"),
        (b'{"model": "x", "input": ""}', 404, "model_not_found", "model"),
        (
            b'{"model": "demo", "input": "", "previous_response_id": "resp_1"}',
            400,
            "previous_response_not_found",
            "previous_response_id",
        ),
        (
            b'{"model": "demo", "input": "", "tool_choice": "required"}',
            400,
            None,
            "tool_choice",
        ),
        (
            b'{"model": "demo", "input": "", '
            b'"text": {"format": {"type": "json_schema", "name": "x"}}}',
            400,
            "missing_required_parameter",
            "text.format.schema",
        ),
    ],
)
async def test_bad_requests_are_refused_by_field(http, body, status, code, param):
    refused = await http.post("/responses", content=body)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (status, code, param)
    assert error["type"] == "invalid_request_error"
    assert refused.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/responses", 405),
        ("POST", "/models", 405),
        ("GET", "/models/none", 404),
        ("POST", "/embeddings", 404),
    ],
)
async def test_other_addresses_are_refused(http, method, path, status):
    refused = await http.request(method, path)
    assert refused.status_code == status
    assert refused.json()["error"]["message"]


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer sk-wrong", "Basic x", "Bearer ключ"]
)
async def test_only_the_demo_key_is_let_in(http, header):
    refused = await http.get("/models", headers={"Authorization": header.encode()})
    assert refused.status_code == 401
    assert "sk-wrong" not in refused.text


async def test_a_rate_limit_names_the_time_to_retry(http):
    refused = await http.post(
        "/responses", json={"model": MODEL, "input": "/fail 429", "stream": True}
    )
    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "2"


async def test_a_request_too_large_is_refused(http):
    refused = await http.post("/responses", content=b" " * (MAX_BODY + 1))
    assert refused.status_code == 413


def test_the_key_is_derived_from_the_secret_without_exposing_it(settings):
    first = demo_key()
    assert re.fullmatch("demo-[0-9a-f]{40}", first)
    settings.SECRET_KEY = "another"
    assert demo_key() != first
