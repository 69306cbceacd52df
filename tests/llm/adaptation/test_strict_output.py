"""Which schema hosts are sent, and what becomes of their answers, over real bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
import respx

from llm.errors import BadResponse
from llm.generation import retries
from llm.generation.retry_policy import Policy
from llm.http import client
from llm.http.client import ProviderCall
from llm.wire.deltas import TextDelta
from llm.wire.items import user_message
from llm.wire.request import Request
from tests.llm.hosts import Host, refuses, route_at, text_stream

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 0},
    },
    "required": ["name"],
}
STRICT = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "(minLength: 2)"},
        "age": {"type": ["integer", "null"], "minimum": 0},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
ONLY_HERE = "text.format (checked by Parley alone: minLength)"
WELL, ILL = '{"name":"Ada","age":null}', '{"name":"A","age":3}'


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as mock:
        yield mock


async def answer(route: Any, call: ProviderCall, **options: Any) -> str:
    form = {"type": "json_schema", "name": "answer", "schema": SCHEMA}
    request = Request(
        model="a-model",
        items=[user_message("Hi")],
        text={"format": {**form, **options.pop("form", {})}},
    )
    once = Policy(attempts=1)
    stream = retries.stream([route], request, call, policy=once, **options)
    async with aclosing(stream) as batches:
        deltas = [delta async for batch in batches for delta in batch]
    return "".join(d.text for d in deltas if isinstance(d, TextDelta))


def sent(body: dict[str, Any]) -> dict[str, Any]:
    return body["response_format"]["json_schema"]


def at(kind: str) -> Any:
    return route_at(kind, codec="openai_chat" if kind == "openai" else "")


async def test_a_host_with_strict_mode_gets_a_schema_that_fits_it(web):
    host, call = Host(web, "a", text_stream(WELL)), ProviderCall()
    text = await answer(at("openai"), call, strict=True)
    assert sent(host.requests[0]) == {
        "name": "answer",
        "schema": STRICT,
        "strict": True,
    }
    assert json.loads(text) == {"name": "Ada"}  # which the caller's schema allows
    assert call.degraded == [ONLY_HERE]


@pytest.mark.parametrize("form", [{}, {"strict": True}, {"strict": False}])
async def test_the_gateway_sends_what_its_client_wrote(web, form):
    host, call = Host(web, "a", text_stream('{"name":"Ada"}')), ProviderCall()
    await answer(at("openai"), call, form=form)
    assert sent(host.requests[0]) == {"name": "answer", "schema": SCHEMA, **form}
    assert call.degraded == []


async def test_what_a_host_does_not_enforce_is_named(web):
    host, call = Host(web, "a", text_stream('{"name":"Ada"}')), ProviderCall()
    await answer(at("groq"), call, strict=True)
    assert sent(host.requests[0]) == {"name": "answer", "schema": SCHEMA}
    assert call.degraded == ["text.format.strict"]


async def test_a_refused_strict_schema_is_sent_as_it_is(web):
    refusal = refuses(400, code="invalid_json_schema")
    host = Host(web, "a", refusal, text_stream('{"name":"Ada"}'))
    call = ProviderCall()
    await answer(at("openai"), call, strict=True)
    assert "strict" not in sent(host.requests[1])
    assert sent(host.requests[1])["schema"] == SCHEMA
    assert call.degraded == ["strict"]


@pytest.mark.parametrize("corrections", [0, 1, 2])
async def test_an_answer_that_does_not_fit_is_corrected_so_often(
    web, settings, corrections
):
    """In calls of their own, which say so."""
    settings.STRUCTURED_OUTPUT_CORRECTIONS = corrections
    answers = [text_stream(ILL) for _ in range(corrections + 1)]
    host, call = Host(web, "a", *answers), ProviderCall()
    with pytest.raises(BadResponse):
        await answer(at("openai"), call, strict=True, buffered=True)
    assert len(host.requests) == corrections + 1
    made = [*call.earlier, call]
    assert [c.purpose for c in made] == ["answer", *["correction"] * corrections]
    assert all(sent(body)["schema"] == STRICT for body in host.requests)


async def test_a_corrected_answer_is_all_that_the_caller_gets(web):
    host, call = Host(web, "a", text_stream(ILL), text_stream(WELL)), ProviderCall()
    text = await answer(at("openai"), call, strict=True, buffered=True)
    assert json.loads(text) == {"name": "Ada"}
    assert "At name:" in str(host.requests[1]["messages"])
