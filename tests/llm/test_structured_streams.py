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

from . import claude
from .hosts import Host, route, route_at, says

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
    with respx.mock(using="httpx", assert_all_called=False) as mock:
        yield mock


async def read(way: Any) -> tuple[str, str, api.Stream]:
    """The text as it was told piece by piece, and how it ended."""
    text, last = "", ""
    async with aclosing(api.stream(way, "Where?", text=FORM)) as stream:
        async for event in stream:
            last = event["type"]
            if last == "response.output_text.delta":
                text += event["delta"]
    return text, last, stream


async def rows() -> list[tuple[int, str]]:
    found = ModelCall.objects.order_by("pk")
    return [(row.attempt, row.status) async for row in found]


async def test_nobody_reads_what_does_not_fit_where_it_is_we_who_ask_for_the_form(web):
    Host(web, "a", says(BAD), says(GOOD))
    text, last, stream = await read(route(capabilities=WORDS))
    assert (text, last) == (GOOD, "response.completed")
    assert stream.result.parsed == {"city": "Rome"}
    assert await rows() == [(1, "failed"), (2, "completed")]
    usage = stream.result.response["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (20, 10)


async def test_a_second_misfit_is_an_error_whose_words_are_kept(web):
    Host(web, "a", says(BAD), says(BAD))
    text, last, stream = await read(route(capabilities=WORDS))
    assert (text, last) == (BAD, "response.failed")
    assert stream.error.code == "E_LLM_BAD_RESPONSE"
    assert await rows() == [(1, "failed"), (2, "failed")]


async def test_a_model_that_promises_the_form_is_heard_at_once_and_judged_at_the_end(
    web,
):
    host = Host(web, "a", says('{"town": ', '"Rome"}'))
    text, last, stream = await read(route(capabilities={"json_schema": True}))
    assert (text, last) == (BAD, "response.failed")
    assert stream.error.code == "E_LLM_BAD_RESPONSE"
    assert len(host.asked) == 1
    assert await rows() == [(1, "failed")]


def messages(text: str) -> bytes:
    said = claude.streamed({"type": "text", "text": text})
    return claude.frames(claude.START, *said, claude.ended(), claude.STOP)


async def test_where_the_wire_has_only_words_after_all_the_answer_is_held_too(web):
    """Claude takes no schema of more than 24 options; then it is told in words, and
    what it says may come in a fence, or be wrong."""
    loose = {
        "type": "object",
        "properties": {f"p{n}": {"type": "string"} for n in range(30)},
    }
    asked = {"format": {"type": "json_schema", "name": "c", "schema": loose}}
    host = Host(web, "a", messages("```json\n[]\n```"), messages('Sure:\n{"p1": "x"}'))
    result = await api.collect(
        api.stream(route_at("anthropic", model=claude.NEW), "Where?", text=asked)
    )
    assert (result.text, result.parsed) == ('{"p1":"x"}', {"p1": "x"})
    assert "format" not in host.asked[0].get("output_config", {})
    assert result.metadata["degraded"] == ["text.format"]
    assert result.metadata["api_calls"] == 2
