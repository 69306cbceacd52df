"""What readers of a stream see of an answer that must have a form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
import respx

from llm import api
from llm.http import client
from llm.models import ModelCall
from tests.llm import claude
from tests.llm.hosts import Host, route, route_at, text_stream

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FORM = {"format": {"type": "json_schema", "name": "c", "schema": CITY}}
WORDS = {"json_schema": False, "tools": False}
GOOD, BAD = '{"city": "Rome"}', '{"town": "Rome"}'

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as mock:
        yield mock


async def read(route: Any) -> tuple[str, str, api.Stream]:
    """The text of all deltas, and the last event."""
    text, last = "", ""
    async with aclosing(api.stream(route, "Where?", text=FORM)) as stream:
        async for event in stream:
            last = event["type"]
            if last == "response.output_text.delta":
                text += event["delta"]
    return text, last, stream


async def rows() -> list[tuple[int, str]]:
    found = ModelCall.objects.order_by("pk")
    return [(row.attempt, row.status) async for row in found]


async def test_a_mismatch_of_prompted_output_is_never_published(web):
    Host(web, "a", text_stream(BAD), text_stream(GOOD))
    text, last, stream = await read(route(capabilities=WORDS))
    assert (text, last) == (GOOD, "response.completed")
    assert stream.result.parsed == {"city": "Rome"}
    assert await rows() == [(1, "failed"), (2, "completed")]
    usage = stream.result.response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (20, 10)


async def test_a_second_mismatch_is_an_error_that_quotes_the_answer(web):
    Host(web, "a", text_stream(BAD), text_stream(BAD))
    text, last, stream = await read(route(capabilities=WORDS))
    assert (text, last) == (BAD, "response.failed")
    assert stream.error.code == "E_LLM_BAD_RESPONSE"
    assert await rows() == [(1, "failed"), (2, "failed")]


async def test_output_of_a_model_with_schema_support_is_published_then_checked(
    web,
):
    host = Host(web, "a", text_stream('{"town": ', '"Rome"}'))
    text, last, stream = await read(route(capabilities={"json_schema": True}))
    assert (text, last) == (BAD, "response.failed")
    assert stream.error.code == "E_LLM_BAD_RESPONSE"
    assert len(host.requests) == 1
    assert await rows() == [(1, "failed")]


def messages(text: str) -> bytes:
    events = claude.streamed({"type": "text", "text": text})
    return claude.frames(claude.START, *events, claude.ended(), claude.STOP)


async def test_an_answer_is_buffered_where_the_wire_falls_back_to_prompting(web):
    """Claude takes no schema of more than 24 options; then the schema is prompted, and
    the answer may come in a code fence, or be wrong."""
    loose = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string"} for n in range(30)},
    }
    text_options = {"format": {"type": "json_schema", "name": "c", "schema": loose}}
    host = Host(web, "a", messages("```json\n[]\n```"), messages('Sure:\n{"p1": "x"}'))
    result = await api.collect(
        api.stream(route_at("anthropic", model=claude.NEW), "Where?", text=text_options)
    )
    assert (result.text, result.parsed) == ('{"p1":"x"}', {"p1": "x"})
    assert "format" not in host.requests[0].get("output_config", {})
    assert result.metadata["degraded"] == ["text.format"]
    assert result.metadata["api_calls"] == 2
