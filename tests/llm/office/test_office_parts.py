"""Office files inside requests, as the host of a model is sent them."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
import pytest
import respx

from llm.adaptation.input_modalities import MODALITIES, contains_part
from llm.errors import BadRequest
from llm.generation import retries
from llm.generation.office_parts import MAX_FILES, read_office_files
from llm.generation.retry_policy import Policy
from llm.http import client
from llm.http.client import ProviderCall
from llm.wire.items import function_call_output, message, user_message
from llm.wire.request import Request
from tests.llm.canned import canned
from tests.llm.hosts import Host, route_at
from tests.llm.office.made import docx, paragraph

DOCUMENT = base64.b64encode(docx(paragraph("Hello"))).decode()
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
FILES = MODALITIES[1]


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


def file(data: str, name: str | None = "a.docx") -> dict[str, Any]:
    part = {"type": "input_file", "file_data": data}
    return part | ({"filename": name} if name else {})


def shows(*parts: dict[str, Any]) -> dict[str, Any]:
    return {**user_message(""), "content": list(parts)}


@pytest.mark.parametrize(
    "part",
    [
        file(DOCUMENT),
        file(f"data:{WORD};base64,{DOCUMENT}", None),
        file(base64.encodebytes(base64.b64decode(DOCUMENT)).decode()),
        file(f"DATA:{WORD.upper()};base64,{DOCUMENT}", "a"),
        file(f"data:application/octet-stream;base64,{DOCUMENT}"),
    ],
)
async def test_every_model_is_sent_the_text(part: dict[str, Any]):
    for item in (
        shows(part),
        {**function_call_output("call_1", ""), "output": [part]},
    ):
        request, lost = await read_office_files(Request(model="m", items=[item]), {})
        (changed,) = request.items[0].get("content") or request.items[0]["output"]
        assert changed["type"] == "input_text"
        assert changed["text"].startswith("<file name=")
        assert "\nHello\n" in changed["text"]
        assert not lost
    assert not contains_part(FILES, shows(part))  # also a model that reads no files


@pytest.mark.parametrize(
    "part",
    [
        file(f"data:application/pdf;base64,{DOCUMENT}", "a.docx"),
        file(DOCUMENT, "a.pdf"),
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_text", "text": "a.docx"},
    ],
)
async def test_other_parts_stay_as_they_are(part: dict[str, Any]):
    request = Request(model="m", items=[shows(part)])
    assert await read_office_files(request, {}) == (request, [])


async def test_a_damaged_file_is_refused_and_later_passed_over():
    damaged = shows(file("data:;base64,%%%"))
    request = Request(model="m", items=[damaged])
    with pytest.raises(BadRequest, match=r"'a\.docx' cannot be read: it is damaged"):
        await read_office_files(request, {})
    later = [damaged, message("assistant", "Sorry."), user_message("Go on")]
    request, lost = await read_office_files(replace(request, items=later), {})
    assert request.items[0]["content"][0]["type"] == "input_text"
    assert lost == ["input (file not read)"]


async def test_so_many_files_of_a_request_are_read():
    files = [
        file(base64.b64encode(docx(paragraph(f"Text {number}."))).decode())
        for number in range(MAX_FILES + 1)
    ]
    request = Request(model="m", items=[shows(*files)])
    with pytest.raises(BadRequest, match="at most 20 Office files"):
        await read_office_files(request, {})
    answer = [message("assistant", "I see."), user_message("Go on")]
    history = [*(shows(each) for each in files), *answer]
    request, lost = await read_office_files(replace(request, items=history), {})
    first, *others = (item["content"][0]["text"] for item in request.items[:-2])
    assert "cannot be read" in first
    assert all(f"Text {number}." in text for number, text in enumerate(others, 1))
    assert lost


@pytest.mark.parametrize("name", ["ollama", "anthropic", "gemini", "openai"])
async def test_a_host_of_any_api_is_sent_the_text(name: str):
    route = route_at(name)
    request = Request(model=route.model, items=[shows(file(DOCUMENT))])
    with respx.mock(using="parley") as web:
        host = Host(web, "a", canned(route.endpoint.codec).stream)
        stream = retries.stream(
            [route], request, ProviderCall(), policy=Policy(attempts=1)
        )
        async with aclosing(stream) as batches:
            async for _ in batches:
                pass
    sent = orjson.dumps(host.requests[0]).decode()
    assert "Hello" in sent
    assert DOCUMENT not in sent
