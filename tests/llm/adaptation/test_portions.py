"""Answers that take several requests: Gemini's continuations, Claude's pauses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
import pytest
import respx

from llm import api
from llm.errors import LLMError, ProviderDown
from llm.generation import attempt, retries
from llm.generation.result import metadata_of
from llm.generation.retry_policy import Policy
from llm.http import client
from llm.http.client import ProviderCall
from llm.models import ModelCall
from llm.wire.codecs.gemini.codec import GeminiCodec
from llm.wire.deltas import FinishDelta, TextDelta, UsageDelta
from llm.wire.items import user_message
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from tests.llm import claude
from tests.llm.gemini import call as function_call
from tests.llm.gemini import chunk, frames, text, thought
from tests.llm.hosts import Host, refuses, route_at

MODEL = "gemini-4-argon"
ROUTE = route_at("gemini", model=MODEL)
QUESTION = Request(
    model=MODEL,
    items=[user_message("Write a book.")],
    extra={"labels": {"a": "b"}},
    issuer=ROUTE.endpoint.issuer(MODEL),
)


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as mock:
        yield mock


def portion(*parts: Any, token: str = "", id: str = "r1", written: int = 5) -> bytes:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": written}
    ending = chunk(finish="CONTINUATION" if token else "STOP")
    if token:
        ending["candidates"][0]["continuationToken"] = token
    pieces = [*(chunk(part) for part in parts), ending]
    return frames(*({**p, "responseId": id, "usageMetadata": usage} for p in pieces))


async def answered(call: ProviderCall, **options: Any) -> tuple[ResponseBuilder, Any]:
    """What is built of the answer, and the error that ended it."""
    builder, error = ResponseBuilder(id="resp_1", model="m", created_at=1), None
    builder.begin_call()
    stream = retries.stream([ROUTE], QUESTION, call, **options)
    try:
        async with aclosing(stream) as batches:
            async for deltas in batches:
                builder.feed(deltas)
    except LLMError as exc:
        error = exc
    builder.end_call(whole=error is None)
    return builder, error


def made(call: ProviderCall, builder: ResponseBuilder) -> list[ProviderCall]:
    return retries.calls_made(
        call,
        start=builder.start_delta,
        usage=builder.call_usage,
        finish=builder.finish,
    )


async def test_the_same_request_is_made_with_the_token_until_the_answer_is_whole(web):
    first = portion(text("It was a da"), token="dDE=", id="r1")
    second = portion(text("rk and stor"), token="dDI=", id="r2", written=6)
    last = portion(text("my night."), id="r3", written=7)
    host, call = Host(web, "a", first, second, last), ProviderCall()
    builder, error = await answered(call)
    assert error is None
    (item,) = builder.output
    assert item["content"][0]["text"] == "It was a dark and stormy night."
    plain, *again = host.requests
    assert [body.pop("continuationToken") for body in again] == ["dDE=", "dDI="]
    assert [plain, plain] == again
    assert (builder.finish.reason, builder.start_delta.response_id) == ("stop", "r3")


async def test_tokens_of_all_portions_count_and_each_call_has_its_own(web):
    Host(
        web,
        "a",
        portion(text("a"), token="t", id="r1"),
        portion(text("b"), id="r2", written=7),
    )
    call = ProviderCall()
    builder, _ = await answered(call)
    assert builder.usage["input_tokens"] == 20
    assert builder.usage["output_tokens"] == 12
    calls = made(call, builder)
    assert [c.usage.output_tokens for c in calls] == [5, 7]
    assert [c.start.response_id for c in calls] == ["r1", "r2"]
    assert [c.finish for c in calls] == [
        FinishDelta("pause", "CONTINUATION"),
        FinishDelta("stop", "STOP"),
    ]
    assert [c.continues for c in calls] == [False, True]
    assert [c.error for c in calls] == [None, None]


async def test_the_first_word_is_that_of_the_first_portion(web):
    Host(web, "a", portion(text("a"), token="t"), portion(text("b")))
    call = ProviderCall()
    builder, _ = await answered(call)
    calls = made(call, builder)
    metadata = metadata_of(calls, builder.response(), route=ROUTE, costs=[])
    assert metadata["api_calls"] == 2
    assert metadata["ttft_ms"] == round(calls[0].ttft * 1000)


async def test_a_thought_a_call_and_proofs_may_lie_in_different_portions(web):
    first = portion(thought("Hm, let "), token="t")
    second = portion(
        thought("me see.", thoughtSignature="c2ln"),
        function_call("look", {"at": "it"}, thoughtSignature="c2lo"),
    )
    Host(web, "a", first, second)
    builder, _ = await answered(ProviderCall())
    reasoning, called = builder.output
    assert reasoning["summary"][0]["text"] == "Hm, let me see."
    assert called["arguments"] == '{"at":"it"}'
    proofs = [builder.proofs[item["id"]] for item in builder.output]
    assert [part["text"] for part in proofs[0]] == ["Hm, let ", "me see."]
    assert proofs[1][0]["thoughtSignature"] == "c2lo"
    assert builder.finish.reason == "tool_calls"


async def test_a_failing_portion_keeps_its_text_and_is_not_repeated(web):
    host = Host(web, "a", portion(text("Once upon"), token="t"), refuses(503))
    call = ProviderCall()
    builder, error = await answered(call, policy=Policy(attempts=3))
    assert isinstance(error, ProviderDown)
    assert builder.output[0]["content"][0]["text"] == "Once upon"
    assert builder.output[0]["status"] == "incomplete"
    assert len(host.requests) == 2
    assert [c.error for c in made(call, builder)] == [None, error]


async def test_portions_end_somewhere(web, monkeypatch):
    monkeypatch.setattr(attempt, "MAX_PORTIONS", 3)
    host = Host(web, "a", *[portion(text("la "), token="t")] * 9)
    builder, error = await answered(ProviderCall())
    assert (error, len(host.requests)) == (None, 3)
    assert builder.output[0]["content"][0]["text"] == "la la la "
    assert builder.finish.reason == "length"


async def test_an_answer_that_must_have_a_form_is_judged_when_it_is_whole(web):
    schema = {"type": "object", "required": ["a"]}
    form = {"format": {"type": "json_schema", "name": "f", "schema": schema}}
    Host(web, "a", portion(text('{"a'), token="t"), portion(text('": 1}')))
    call, deltas = ProviderCall(), []
    request = replace(QUESTION, text=form)
    async with aclosing(
        retries.stream([ROUTE], request, call, buffered=True)
    ) as batches:
        async for batch in batches:
            deltas += batch
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == '{"a": 1}'
    assert [d.output_tokens for d in deltas if isinstance(d, UsageDelta)][-1] == 10
    assert call.usage.output_tokens == 5


async def test_an_answer_in_one_piece_is_not_continued():
    body = chunk(text("It was"), finish="CONTINUATION")
    body["candidates"][0]["continuationToken"] = "t"
    deltas = list(GeminiCodec().decode(orjson.dumps(body)))
    assert FinishDelta("length", "CONTINUATION") in deltas


# The library repeats the request if Claude's own tools need more time


PAUSED = claude.streamed({"type": "text", "text": "Well. "}, claude.SEARCH)
FOUND = claude.streamed(claude.FOUND, claude.TEXT)


def messages(events: list[Any], reason: str) -> bytes:
    return claude.frames(claude.START, *events, claude.ended(reason), claude.STOP)


@pytest.mark.django_db(transaction=True)
async def test_the_library_goes_on_after_a_pause(web):
    host = Host(web, "a", messages(PAUSED, "pause_turn"), messages(FOUND, "end_turn"))
    result = await api.generate(
        route_at("anthropic", model=claude.NEW),
        "Cats?",
        tools=[{"type": "web_search"}],
    )
    assert result.text == "Well. Hello."
    assert result.metadata["response_status"] == "completed"
    assert result.metadata["api_calls"] == 2
    assert await ModelCall.objects.acount() == 2
    question, answer = host.requests[1]["messages"]
    assert question["role"] == "user"
    assert [b["type"] for b in answer["content"]] == ["text", "server_tool_use"]


@pytest.mark.django_db(transaction=True)
async def test_the_library_does_not_go_on_for_ever(web):
    host = Host(web, "a", *[messages(PAUSED, "pause_turn")] * 20)
    result = await api.generate(
        route_at("anthropic", model=claude.NEW), "Cats?", tools=[{"type": "web_search"}]
    )
    assert len(host.requests) == 11
    assert result.metadata["response_status"] == "incomplete"
    assert result.response["incomplete_details"] == {"reason": "max_steps"}
    assert result.metadata["api_calls"] == 11
