"""A request refused for a part that we added is repeated without that part."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest
import respx

from llm.adaptation import request_repairs
from llm.errors import BadRequest, LLMError
from llm.generation import retries
from llm.generation.retry_policy import Policy
from llm.http import client
from llm.http.client import ProviderCall
from llm.wire.codecs.gemini.contents import NO_SIGNATURE
from llm.wire.deltas import Delta, TextDelta
from llm.wire.items import user_message
from llm.wire.request import Request
from tests.llm.canned import canned
from tests.llm.hosts import Host, breaks_off, refuses, route, route_at, text_stream

ONCE = Policy(attempts=1)
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look",
    "arguments": "{}",
    "status": "completed",
}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "A cat."}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
TOOL = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {}},
    "strict": True,
}


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as mock:
        yield mock


async def listen(
    *routes: Any, call: ProviderCall, model_request: Request, **options: Any
):
    deltas: list[Delta] = []
    options = {"policy": ONCE, **options}
    stream = retries.stream(routes, model_request, call, **options)
    try:
        async with aclosing(stream) as batches:
            async for batch in batches:
                deltas += batch
    except LLMError as exc:
        return deltas, exc
    return deltas, None


def text(deltas: list[Delta]) -> str:
    return "".join(d.text for d in deltas if isinstance(d, TextDelta))


def refused(message: str, code: str | None = None, param: str | None = None, **more):
    """An answer of 400, in the shape that all three vendors' errors have in common."""
    error = {"message": message, "code": code, "param": param, **more}
    return httpx.Response(400, json={"error": error})


# Proofs

ROUTES = {
    "anthropic": route_at("anthropic", model="claude-opus-5-5"),
    "gemini": route_at("gemini", model="gemini-3.8-flash"),
    "openai": route_at("openai", model="gpt-5.6"),
}
CLAUDES = [
    {"type": "thinking", "thinking": "", "signature": "c2ln"},
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
]
PROOFS = {
    "anthropic": [{"content": [block]} for block in CLAUDES],
    "gemini": [
        [{"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"}],
        [{"functionCall": {"name": "look"}, "thoughtSignature": "c2ln"}],
    ],
    "openai": [
        {"type": "reasoning", "id": "rs_1", "encrypted_content": "c2ln", "summary": []},
        {**CALL, "id": "fc_theirs"},
    ],
}
SAYINGS = {
    "anthropic": [
        "messages.1.content.0: The block is bound to a different conversation.",
        "`thinking` or `redacted_thinking` blocks in the latest assistant message"
        " cannot be modified.",
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ],
    "gemini": [
        "Thought signature is not valid.",
        "Corrupted thought signature.",
        "Function call is missing a thought_signature in functionCall parts.",
    ],
    "openai": [
        "Item 'fc_theirs' of type 'function_call' was provided without its required"
        " 'reasoning' item: 'rs_1'.",
        "The encrypted content c2ln could not be verified.",
    ],
}


def proven(kind: str) -> Request:
    """A conversation with proofs of that very route."""
    route = ROUTES[kind]
    issuer = route.endpoint.issuer(route.model)
    items = [
        {**item, "provider_data": {"issuer": issuer, "raw": raw}}
        for item, raw in zip([THOUGHT, CALL], PROOFS[kind], strict=True)
    ]
    return Request(
        model=route.model,
        items=[user_message("Look."), *items, OUTPUT],
        tools=[{**TOOL, "strict": False}],
        issuer=issuer,
    )


@pytest.mark.parametrize(
    ("kind", "saying"), [(kind, each) for kind in SAYINGS for each in SAYINGS[kind]]
)
async def test_proofs_that_are_refused_are_left_out_once(web, kind: str, saying: str):
    route, call = ROUTES[kind], ProviderCall()
    answer = canned(route.endpoint.codec).stream
    host = Host(web, "a", refused(saying), answer)
    deltas, error = await listen(route, call=call, model_request=proven(kind))
    assert (text(deltas), error) == ("Hello", None)
    first, second = (orjson.dumps(body).decode() for body in host.requests)
    assert "c2ln" in first
    assert '"c2ln"' not in second
    assert "A cat." in second
    assert "look" in second
    assert [c.http_status for c in [*call.earlier, call]] == [400, 200]
    assert call.earlier[0].degraded == []
    assert [what for what in call.degraded if what.startswith("input (without")]


async def test_other_content_of_claude_goes_back_unchanged(web):
    route = ROUTES["anthropic"]
    answer = canned(route.endpoint.codec).stream
    host = Host(web, "a", refused(SAYINGS["anthropic"][0]), answer)
    await listen(route, call=ProviderCall(), model_request=proven("anthropic"))
    contents = [
        m["content"] for m in host.requests[1]["messages"] if m["role"] == "assistant"
    ]
    assert contents == [[CLAUDES[1]]]


async def test_gemini_gets_the_placeholder_for_calls_without_a_signature(web):
    route = ROUTES["gemini"]
    answer = canned(route.endpoint.codec).stream
    host = Host(web, "a", refused(SAYINGS["gemini"][0]), answer)
    await listen(route, call=ProviderCall(), model_request=proven("gemini"))
    (parts,) = [
        c["parts"] for c in host.requests[1]["contents"] if c["role"] == "model"
    ]
    assert [part["thoughtSignature"] for part in parts] == [NO_SIGNATURE]


async def test_an_answer_that_fails_for_a_missing_signature_is_requested_again(web):
    route, call = ROUTES["gemini"], ProviderCall()
    unsigned = (
        b'data: {"candidates":[{"finishReason":"MISSING_THOUGHT_SIGNATURE"}]}\n\n'
    )
    Host(web, "a", unsigned, canned(route.endpoint.codec).stream)
    deltas, error = await listen(route, call=call, model_request=proven("gemini"))
    assert (text(deltas), error) == ("Hello", None)
    assert call.earlier[0].error.upstream_code == "MISSING_THOUGHT_SIGNATURE"


async def test_a_second_refusal_is_not_repaired(web):
    saying = SAYINGS["gemini"][0]
    host = Host(web, "a", refused(saying), refused(saying), refused(saying))
    _, error = await listen(
        ROUTES["gemini"], call=ProviderCall(), model_request=proven("gemini")
    )
    assert isinstance(error, BadRequest)
    assert len(host.requests) == 2


@pytest.mark.parametrize("kind", ROUTES)
async def test_where_there_is_no_proof_nothing_can_be_left_out(web, kind: str):
    route = ROUTES[kind]
    host = Host(web, "a", refused(SAYINGS[kind][0]))
    model_request = Request(model=route.model, items=[user_message("Hi")])
    _, error = await listen(route, call=ProviderCall(), model_request=model_request)
    assert isinstance(error, BadRequest)
    assert len(host.requests) == 1


async def test_after_published_text_nothing_is_repaired(web):
    failing = b'data: {"error": {"code": 400, "message": "Bad thought_signature"}}\n\n'
    host = Host(web, "a", breaks_off("Hel") + failing)
    model_request = Request(model="a-model", items=[user_message("Hi")], seed=1)
    deltas, error = await listen(
        route(), call=ProviderCall(), model_request=model_request
    )
    assert text(deltas) == "Hel"
    assert isinstance(error, BadRequest)
    assert len(host.requests) == 1


# Options


def plain(**options: Any) -> Request:
    return Request(model="a-model", items=[user_message("Hi")], **options)


UNSUPPORTED = "Unsupported parameter: {0!r} is not supported with this model."


@pytest.mark.parametrize(
    ("param", "option", "expected"),
    [
        ("seed", {"seed": 7}, "seed"),
        (
            "parallel_tool_calls",
            {"parallel_tool_calls": True, "tools": [TOOL]},
            "parallel_tool_calls",
        ),
    ],
)
async def test_a_refused_option_is_dropped(web, param, option, expected):
    message = UNSUPPORTED.format(param)
    host = Host(web, "a", refused(message, None, param), text_stream("Hello"))
    call = ProviderCall()
    deltas, error = await listen(route(), call=call, model_request=plain(**option))
    assert (text(deltas), error) == ("Hello", None)
    assert param in host.requests[0]
    assert param not in host.requests[1]
    assert call.degraded == [expected]


async def test_a_hint_that_is_too_long_is_dropped(web):
    message = "Invalid 'safety_identifier': string too long. Expected at most 9."
    refusal = refused(message, "string_above_max_length", "safety_identifier")
    route = ROUTES["openai"]
    host = Host(web, "a", refusal, canned(route.endpoint.codec).stream)
    call, asked = ProviderCall(), plain(safety_identifier="u" * 10)
    deltas, error = await listen(route, call=call, model_request=asked)
    assert (text(deltas), error) == ("Hello", None)
    assert "safety_identifier" not in host.requests[1]
    assert call.degraded == ["safety_identifier"]


async def test_an_option_the_caller_set_is_refused_by_name(web):
    message = UNSUPPORTED.format("temperature")
    host = Host(web, "a", refused(message, "unsupported_parameter", "temperature"))
    _, error = await listen(
        route(), call=ProviderCall(), model_request=plain(temperature=0.5)
    )
    assert type(error) is BadRequest
    assert str(error) == "This model does not support 'temperature'; leave it out."
    assert error.param == "temperature"
    assert len(host.requests) == 1


async def test_or_dropped_where_the_caller_allows_it(web):
    refusal = refused(UNSUPPORTED.format("temperature"), None, "temperature")
    host, call = Host(web, "a", refusal, text_stream("Hello")), ProviderCall()
    deltas, _ = await listen(
        route(), call=call, model_request=plain(temperature=0.5), ignore_invalid=True
    )
    assert text(deltas) == "Hello"
    assert "temperature" not in host.requests[1]
    assert call.degraded == ["temperature"]


async def test_the_limit_goes_by_its_other_name(web):
    message = (
        "Unsupported parameter: 'max_tokens' is not supported with this model."
        " Use 'max_completion_tokens' instead."
    )
    refusal = refused(message, "unsupported_parameter", "max_tokens")
    host, call = Host(web, "a", refusal, text_stream("Hello")), ProviderCall()
    deltas, _ = await listen(
        route(), call=call, model_request=plain(max_output_tokens=99)
    )
    assert text(deltas) == "Hello"
    assert (
        host.requests[0]["max_tokens"]
        == host.requests[1]["max_completion_tokens"]
        == 99
    )
    assert "max_tokens" not in host.requests[1]
    assert call.degraded == ["max_tokens (sent as max_completion_tokens)"]


async def test_a_fault_of_our_own_field_costs_no_answer(web):
    message = "Unknown field: stream_options"
    host = Host(
        web, "a", refused(message, None, "stream_options"), text_stream("Hello")
    )
    deltas, error = await listen(route(), call=ProviderCall(), model_request=plain())
    assert (text(deltas), error) == ("Hello", None)
    assert "stream_options" not in host.requests[1]


async def test_encrypted_reasoning_is_not_wanted_where_there_is_none(web):
    route = ROUTES["openai"]
    message = "Encrypted content is not supported with this model."
    answer = canned(route.endpoint.codec).stream
    host = Host(web, "a", refused(message, None, "include"), answer)
    model_request = Request(model=route.model, items=[user_message("Hi")])
    deltas, error = await listen(
        route, call=ProviderCall(), model_request=model_request
    )
    assert (text(deltas), error) == ("Hello", None)
    assert ["include" in body for body in host.requests] == [True, False]


# Roles and schemas


@pytest.mark.parametrize("codec", ["openai_chat", "openai_responses"])
async def test_a_developer_becomes_the_system(web, codec: str):
    route, call = route_at("openai", codec, model="gpt-5.6"), ProviderCall()
    developer = {**user_message("Be brief."), "role": "developer"}
    message = "'developer' is not one of ['system', 'assistant', 'user', 'tool']"
    answer = canned(route.endpoint.codec).stream
    host = Host(web, "a", refused(message, None, "messages[0].role"), answer)
    model_request = Request(model=route.model, items=[developer, user_message("Hi")])
    deltas, error = await listen(route, call=call, model_request=model_request)
    assert (text(deltas), error) == ("Hello", None)
    first, second = (
        [item["role"] for item in body.get("messages") or body["input"]]
        for body in host.requests
    )
    assert (first, second) == (["developer", "user"], ["system", "user"])
    assert "input (developer → system)" in call.degraded


async def test_a_schema_refused_as_too_strict_is_sent_loosely(web):
    route, call = ROUTES["openai"], ProviderCall()
    message = (
        "Invalid schema for function 'look': 'required' is required to be supplied"
    )
    refusal = refused(message, "invalid_function_parameters", "tools[0].parameters")
    host = Host(web, "a", refusal, canned(route.endpoint.codec).stream)
    model_request = Request(model=route.model, items=[user_message("Hi")], tools=[TOOL])
    deltas, error = await listen(route, call=call, model_request=model_request)
    assert (text(deltas), error) == ("Hello", None)
    assert [body["tools"][0]["strict"] for body in host.requests] == [True, False]
    assert call.degraded == ["strict"]


# Pictures

PICTURE = {
    "type": "input_image",
    "image_url": "data:image/png;base64,iVBORw0KGgo=",
    "detail": "auto",
}
TOO_LARGE = [
    (
        "anthropic",
        400,
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum:"
        " 6129904 bytes > 5242880 bytes",
        None,
    ),
    (
        "anthropic",
        400,
        "messages.0.content.1.image.source.base64.data: At least one of the image"
        " dimensions exceed max allowed size for many-image requests: 2000 pixels",
        None,
    ),
    ("anthropic", 413, "Request exceeds the maximum size", "request_too_large"),
    ("openai", 400, "The image is not valid.", "image_too_large"),
    ("openai", 400, "Too many images provided: at most 5 images.", None),
]


def pictured(wire: str, *later: Any) -> Request:
    shown = {**user_message("Look"), "content": [PICTURE]}
    return Request(model=ROUTES[wire].model, items=[shown, *later])


@pytest.mark.parametrize(("wire", "status", "message", "code"), TOO_LARGE)
async def test_a_conversation_goes_on_after_a_picture_that_was_too_large(
    web, wire: str, status: int, message: str, code: str | None
):
    route = ROUTES[wire]
    error = {"message": message, "code": code, "type": code or "invalid_request_error"}
    refusal = httpx.Response(status, json={"error": error})
    host = Host(web, "a", refusal, canned(route.endpoint.codec).stream)
    call = ProviderCall()
    deltas, problem = await listen(
        route, call=call, model_request=pictured(wire, user_message("And now?"))
    )
    assert (text(deltas), problem) == ("Hello", None)
    sent = [orjson.dumps(body).decode() for body in host.requests]
    assert ["iVBORw0KGgo=" in body for body in sent] == [True, False]
    assert "And now?" in sent[1]
    assert call.degraded == ["images of earlier messages"]


def shown_by_tool(name: str) -> list[Any]:
    """A call, and its result: a picture."""
    picture = {**PICTURE, "image_url": f"data:image/png;base64,{name}"}
    return [
        {"type": "function_call", "call_id": name, "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": name, "output": [picture]},
    ]


@pytest.mark.parametrize("has_earlier", [False, True])
async def test_an_agent_goes_on_after_too_many_pictures_of_its_tools(
    web, has_earlier: bool
):
    *_, (wire, status, message, code) = TOO_LARGE
    error = {"message": message, "code": code, "type": "invalid_request_error"}
    refusal = httpx.Response(status, json={"error": error})
    host = Host(web, "a", refusal, canned(ROUTES[wire].endpoint.codec).stream)
    question = pictured(wire, user_message("Go on")) if has_earlier else pictured(wire)
    results = [*shown_by_tool("AAAA"), *shown_by_tool("BBBB"), *shown_by_tool("CCCC")]
    call = ProviderCall()
    request = replace(question, items=[*question.items, *results])
    deltas, problem = await listen(ROUTES[wire], call=call, model_request=request)
    assert (text(deltas), problem) == ("Hello", None)
    last = orjson.dumps(host.requests[-1]).decode()
    shown = [f"base64,{data}" in last for data in ("AAAA", "BBBB", "CCCC", "iVBO")]
    assert shown == [False, False, True, not has_earlier]
    what = "messages" if has_earlier else "results"
    assert call.degraded == [f"images of earlier {what}"]


@pytest.mark.parametrize(("wire", "status", "message", "code"), TOO_LARGE[:2])
async def test_a_picture_that_is_asked_about_is_never_left_out(
    web, wire: str, status: int, message: str, code: str | None
):
    Host(web, "a", refused(message, code))
    _, problem = await listen(
        ROUTES[wire], call=ProviderCall(), model_request=pictured(wire)
    )
    assert str(problem) == "A picture is too large for this model; send a smaller one."


async def test_the_second_attempt_counts_as_none_of_the_policys(web):
    refusal = refused(UNSUPPORTED.format("seed"), None, "seed")
    host = Host(web, "a", refusal, refuses(503), text_stream("Hello"))
    patient = Policy(attempts=2, delay=0)
    call = ProviderCall()
    deltas, _ = await listen(
        route(), call=call, model_request=plain(seed=1), policy=patient
    )
    assert text(deltas) == "Hello"
    assert [("seed" in body) for body in host.requests] == [True, False, False]
    assert call.attempt == 3


@pytest.mark.parametrize("status", [401, 403, 404, 413, 429, 500])
def test_only_what_the_request_is_at_fault_for_is_mended(status: int):
    codec = ROUTES["gemini"].endpoint.codec
    body = orjson.dumps({"error": {"message": "thought signature", "code": status}})
    error = codec.error(status, {}, body)
    assert request_repairs.find(error, proven("gemini"), codec) is None
