from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from contextvars import Context, copy_context
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.trace import SpanKind, StatusCode

from llm.errors import RateLimited
from llm.http import client
from llm.http.client import ProviderCall, stream
from llm.telemetry import tracing
from llm.telemetry.spans import PROVIDERS, SCHEMA, Spans
from tests.llm.http.test_client import (
    ANSWER,
    KEY,
    PROMPT,
    URL,
    endpoint,
    frames,
    request,
)
from tests.llm.telemetry.traced import TracedSpans

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
QUOTE = f"{PROMPT} {KEY}"


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> TracedSpans:
    traced = TracedSpans()
    monkeypatch.setattr(tracing, "spans", traced.spans)
    return traced


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def provider() -> Iterable[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as router:
        yield router


async def call_model(call: ProviderCall | None = None, **options: Any) -> None:
    asked_for = request(temperature=0.5, **options)
    async with aclosing(stream(endpoint(), asked_for, call)) as batches:
        async for _ in batches:
            pass


async def test_a_call_is_a_span_whose_host_continues_the_trace(
    traced: TracedSpans, provider: respx.MockRouter
):
    route = provider.post(URL).mock(return_value=httpx.Response(200, content=ANSWER))
    turn = traced.spans.start_turn(PARENT, {}, conversation_id="conv_1", kind="gemini")
    await call_model()
    span = traced.only()
    assert (span.name, span.kind) == ("chat m", SpanKind.CLIENT)
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.parent.span_id == turn.get_span_context().span_id
    sent = route.calls.last.request.headers["traceparent"]
    assert sent == f"00-{TRACE}-{span.context.span_id:016x}-01"
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "say",
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.id": "r1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.conversation.id": "conv_1",
        "server.address": "models.test",
        "server.port": 443,
        "http.response.status_code": 200,
    }
    assert expected.items() <= dict(span.attributes).items()
    assert span.instrumentation_scope.schema_url == SCHEMA


#: What the conventions require of each operation, also under a condition that holds in
#: the test.
REQUIRED = {
    "invoke_agent": {
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.agent.name",
        "gen_ai.conversation.id",
    },
    "chat": {
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.conversation.id",
        "gen_ai.output.type",
        "gen_ai.request.seed",
        "server.port",
    },
    "execute_tool": {"gen_ai.operation.name", "gen_ai.tool.name"},
}


async def test_spans_have_what_the_conventions_require(
    traced: TracedSpans, provider: respx.MockRouter
):
    provider.post(URL).mock(return_value=httpx.Response(200, content=ANSWER))
    turn = traced.spans.start_turn("", {}, conversation_id="conv_1", kind="gemini")
    schema = {"format": {"type": "json_schema", "name": "n", "schema": {}}}
    await call_model(seed=7, text=schema, frequency_penalty=0.25, presence_penalty=0)
    for span in (traced.spans.start_tool_call("echo", "call_1"), turn):
        traced.spans.end(span)
    found = {span.attributes["gen_ai.operation.name"]: span for span in traced.ended}
    assert found.keys() == REQUIRED.keys()
    for operation, span in found.items():
        assert REQUIRED[operation] <= set(span.attributes)
    assert found["invoke_agent"].attributes["gen_ai.provider.name"] == "gcp.gemini"
    chat = dict(found["chat"].attributes)
    assert chat["gen_ai.output.type"] == "json"
    assert chat["gen_ai.request.seed"] == 7
    assert chat["gen_ai.request.frequency_penalty"] == 0.25
    assert chat["gen_ai.request.presence_penalty"] == 0


async def test_a_call_outside_of_a_conversation_names_none(
    traced: TracedSpans, provider: respx.MockRouter
):
    provider.post(URL).mock(return_value=httpx.Response(200, content=ANSWER))
    await call_model()
    attributes = traced.only().attributes
    assert not {"gen_ai.conversation.id", "gen_ai.output.type"} & set(attributes)


async def test_without_traces_a_host_gets_no_header(
    traced: TracedSpans, provider: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
):
    """Headers of requests to the same account are shared."""
    route = provider.post(URL).mock(return_value=httpx.Response(200, content=ANSWER))
    await call_model()
    monkeypatch.setattr(tracing, "spans", None)
    await call_model()
    first, second = (each.request.headers for each in route.calls)
    assert "traceparent" in first
    assert "traceparent" not in second


async def test_a_failed_call_has_its_code_and_no_text(
    traced: TracedSpans, provider: respx.MockRouter
):
    provider.post(URL).mock(return_value=httpx.Response(429, text=QUOTE))
    with pytest.raises(RateLimited):
        await call_model()
    span = traced.only()
    assert span.attributes["error.type"] == RateLimited.code
    assert span.status.status_code is StatusCode.ERROR
    assert not span.status.description
    assert not span.events
    for secret in (PROMPT, KEY):
        assert secret not in span.to_json()


async def test_a_call_that_is_given_up_is_cancelled(
    traced: TracedSpans, provider: respx.MockRouter
):
    begun = frames({"start": "r1"}, {"text": "Hel"})
    provider.post(URL).mock(return_value=httpx.Response(200, content=begun))
    async with aclosing(stream(endpoint(), request())) as batches:
        async for _ in batches:
            break
    assert traced.only().attributes["error.type"] == "cancelled"


HOSTILE = [
    "",
    "00",
    "garbage",
    PARENT.upper(),
    f"{PARENT}-more",
    f"ff-{TRACE}-b7ad6b7169203331-01",
    f"00-{'0' * 32}-b7ad6b7169203331-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"00-{TRACE}-b7ad6b7169203331-zz",
    f"00-{TRACE[:-1]}é-b7ad6b7169203331-01",
    f"{PARENT}\r\nAuthorization: Bearer x",
    "00-" * 30_000,
    "\x00",
]


@pytest.mark.parametrize("header", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_header_begins_a_new_trace(traced: TracedSpans, header: str):
    started = copy_context().run(start, traced.spans, header)
    assert started.parent is None
    assert f"{started.get_span_context().trace_id:032x}" != TRACE


def test_a_state_that_is_too_long_is_dropped_and_a_short_one_passed_on(
    traced: TracedSpans,
):
    for state, passed_on in (("a=1", "a=1"), (f"a={'1' * 5000}", None)):
        sent: dict[str, str] = {}
        context = Context()
        context.run(start, traced.spans, PARENT, state)
        context.run(traced.spans.add_trace_headers, sent)
        assert sent.get("tracestate") == passed_on
        assert sent["traceparent"].startswith(f"00-{TRACE}-")


def start(spans: Spans, parent: str, state: str = "") -> object:
    headers = {"traceparent": parent, "tracestate": state}
    return spans.start_request("POST", headers, {})


async def test_tasks_of_other_requests_are_in_other_traces(traced: TracedSpans):
    async def serve(header: str) -> str:
        start(traced.spans, header)
        await asyncio.sleep(0)
        return traced.spans.current_traceparent()

    found = await asyncio.gather(*(serve(header) for header in (PARENT, "", "")))
    assert len({parent.split("-")[1] for parent in found}) == 3
    assert TracedSpans().spans.current_ids() == ("", "")


def test_the_names_are_those_of_the_conventions():
    known = {
        value
        for name, value in vars(gen_ai_attributes).items()
        if name.startswith("GEN_AI")
    }
    source = Path(Spans.start_turn.__code__.co_filename).read_text()
    used = {word for word in source.split('"') if word.startswith("gen_ai.")}
    assert len(used) > 10
    assert used <= known
    values = {each.value for each in gen_ai_attributes.GenAiProviderNameValues}
    assert set(PROVIDERS.values()) <= values
    operations = {each.value for each in gen_ai_attributes.GenAiOperationNameValues}
    assert {"chat", "invoke_agent", "execute_tool"} <= operations


def test_spans_of_libraries_are_sent_without_texts_of_errors(traced: TracedSpans):
    tracer = traced.provider.get_tracer("some library")
    with pytest.raises(ValueError, match=PROMPT), tracer.start_as_current_span("read"):
        raise ValueError(QUOTE)
    span = traced.only()
    assert span.status.status_code is StatusCode.ERROR
    assert PROMPT not in span.to_json()
