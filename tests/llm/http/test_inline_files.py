"""Images and files by address: followed by the provider, or fetched and sent along."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import httpx
import orjson
import pytest
import respx

from llm.errors import BadRequest, LLMError
from llm.generation import retries
from llm.generation.retry_policy import Policy
from llm.http import client, inline_files
from llm.http.client import ProviderCall
from llm.http.inline_files import FileCache
from llm.providers import all_providers
from llm.wire.items import function_call_output, message, user_message
from llm.wire.request import Request
from tests.llm.canned import canned
from tests.llm.hosts import Host, route_at

PNG = b"\x89PNG\r\n\x1a\n and so on"
PDF = b"%PDF-1.7 and so on"
CAT = "https://pictures.test/cat.png?token=secret"
PAPER = "https://papers.test/a%20paper.pdf"
NOTES = "https://papers.test/notes.md"
OLLAMA = route_at("ollama")
CLAUDE = route_at("anthropic", model="claude-opus-5-5")
GEMINI = route_at("gemini", model="gemini-3.8-flash")


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def web() -> Iterator[respx.MockRouter]:
    with respx.mock(using="parley", assert_all_called=False) as mock:
        mock.get(CAT).respond(200, content=PNG)
        mock.get(PAPER).respond(200, content=PDF)
        headers = {"content-type": "text/markdown; charset=utf-8"}
        mock.get(NOTES).respond(200, content=b"# Notes", headers=headers)
        yield mock


def shows(*parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": list(parts)}


def image(url: Any = CAT) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def file(url: str = PAPER) -> dict[str, Any]:
    return {"type": "input_file", "file_url": url}


async def sent_content(
    route: Any, *items: dict[str, Any], call: ProviderCall | None = None, **options
):
    """The content sent to the provider, once all is fetched; LLMError if it is not."""
    call = call or ProviderCall()
    request = Request(model=route.model, items=items, issuer=None)
    stream = retries.stream(
        [route], request, call, policy=Policy(attempts=1), **options
    )
    async with aclosing(stream) as batches:
        async for _ in batches:
            pass


def host(web: respx.MockRouter, route: Any, times: int = 1) -> Host:
    return Host(web, "a", *[canned(route.endpoint.codec).stream] * times)


def fetches(web: respx.MockRouter) -> list[str]:
    return [str(c.request.url) for c in web.calls if c.request.method == "GET"]


async def test_a_provider_that_follows_addresses_gets_them(web):
    for route in (CLAUDE, GEMINI, route_at("openai"), route_at("groq")):
        receiving = host(web, route)
        await sent_content(route, shows(image()))
        assert CAT in orjson.dumps(receiving.requests[0]).decode()
    assert fetches(web) == []


@pytest.mark.parametrize("url", [CAT, {"url": CAT}])
async def test_one_that_does_not_gets_the_image_itself(web, url: Any):
    receiving = host(web, OLLAMA)
    await sent_content(OLLAMA, shows(image(url)))
    (part,) = receiving.requests[0]["messages"][0]["content"]
    kind, _, data = part["image_url"]["url"].partition(";base64,")
    assert (kind, b64decode(data)) == ("data:image/png", PNG)


async def test_no_host_in_our_own_network_is_sent_an_address(web):
    """It would follow one to where no stranger may look."""
    near = route_at("vllm", allow_private_network=True)
    receiving = host(web, near)
    await sent_content(near, shows(image()))
    assert fetches(web) == [CAT]
    assert CAT not in orjson.dumps(receiving.requests[0]).decode()


async def test_files_go_along_where_only_their_makers_address_is_known(web):
    route = route_at("openai", "openai_chat", model="gpt-4.1")
    receiving = host(web, route)
    await sent_content(route, shows(file()))
    (part,) = receiving.requests[0]["messages"][0]["content"]
    assert part["file"]["filename"] == "a paper.pdf"
    assert part["file"]["file_data"].startswith("data:application/pdf;base64,")


async def test_claude_follows_pdf_and_is_sent_text(web):
    receiving = host(web, CLAUDE)
    await sent_content(CLAUDE, shows(file(), file(NOTES)))
    paper, notes = receiving.requests[0]["messages"][0]["content"]
    assert paper["source"] == {"type": "url", "url": PAPER}
    assert notes["source"]["data"] == "# Notes"
    assert fetches(web) == [NOTES]


async def test_an_image_that_a_tool_returned_by_address_is_fetched_too(web):
    receiving = host(web, OLLAMA)
    call = {"type": "function_call", "call_id": "c1", "name": "draw", "arguments": "{}"}
    output = function_call_output("c1", [image()])
    await sent_content(OLLAMA, user_message("Draw."), call, output)
    assert "data:image/png" in orjson.dumps(receiving.requests[0]).decode()


async def test_an_address_is_fetched_once_in_a_turn(web):
    receiving, files = host(web, OLLAMA, 2), FileCache()
    for _ in range(2):
        await sent_content(OLLAMA, shows(image(), image()), files=files)
    assert len(receiving.requests) == 2
    assert fetches(web) == [CAT]


async def test_an_image_omitted_for_a_model_without_vision_is_not_fetched(web):
    blind = route_at("ollama", capabilities={"vision": False})
    with pytest.raises(BadRequest, match="cannot see images"):
        await sent_content(blind, shows(image()))
    assert fetches(web) == []


# What cannot be had


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (httpx.Response(404), "its server returned HTTP 404"),
        (
            httpx.Response(200, html="<p>Log in"),
            "it is not a PNG, JPEG, GIF or WebP image",
        ),
        (httpx.Response(200), "it is not a PNG, JPEG, GIF or WebP image"),
    ],
)
async def test_an_image_of_the_question_that_is_none_is_named(web, answer, why: str):
    receiving = host(web, OLLAMA)
    web.get(CAT).mock(side_effect=[answer])
    with pytest.raises(BadRequest) as caught:
        await sent_content(OLLAMA, shows(image()))
    assert str(caught.value) == (
        f"The image 'pictures.test/cat.png' could not be fetched: {why}. Send the"
        " image itself, or leave it out."
    )
    assert caught.value.param == "input"
    assert receiving.requests == []


async def test_an_address_in_a_private_network_is_named_and_not_fetched(web):
    with pytest.raises(BadRequest, match="is in a private network"):
        await sent_content(
            OLLAMA, shows(image("http://169.254.169.254/latest/meta-data"))
        )


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://pictures.test/a.png"])
async def test_no_other_kind_of_address_reaches_a_host_in_our_network(web, url: str):
    with pytest.raises(BadRequest, match="only http and https URLs"):
        await sent_content(
            route_at("vllm", allow_private_network=True), shows(image(url))
        )


async def test_an_image_that_has_disappeared_does_not_end_the_conversation(web):
    receiving, call = host(web, OLLAMA), ProviderCall()
    web.get(CAT).respond(404)
    past = [shows(image()), message("assistant", "A cat."), user_message("Sure?")]
    await sent_content(OLLAMA, *past, call=call)
    content = receiving.requests[0]["messages"][0]["content"]
    assert content == (
        "[The image 'pictures.test/cat.png' stood here; it can no longer be fetched.]"
    )
    assert call.degraded == ["input (image not fetched)"]


async def test_all_together_have_a_limit(web, monkeypatch):
    monkeypatch.setattr(inline_files, "MAX_TOTAL", len(PNG))
    with pytest.raises(
        BadRequest, match="together with the other files it is larger than"
    ):
        await sent_content(
            OLLAMA, shows(image(), image("https://pictures.test/cat.png?token=secret"))
        )


async def test_a_fault_of_the_question_is_no_call(web):
    web.get(CAT).respond(404)
    call = ProviderCall()
    with pytest.raises(LLMError):
        await sent_content(OLLAMA, shows(image()), call=call)
    assert call.started_at == 0


# What was uploaded is sent along already

INLINE_PNG = "data:image/png;base64,iVBORw0KGgo="
INLINE_PDF = "data:application/pdf;base64,JVBERi0xLjc="
INLINE_TEXT = "data:text/plain;base64,SGVsbG8="


@pytest.mark.parametrize(
    ("provider", "codec"),
    [
        pytest.param(p.name, name, id=f"{p.name}-{name}")
        for p in all_providers().values()
        for name in p.codecs
    ],
)
class TestUploads:
    """On every wire, whatever its host: it is sent, or refused by name."""

    def written(self, provider: str, codec: str, part: dict[str, Any]) -> str:
        wire = all_providers()[provider].codec(codec)
        request = Request(model="some-model", items=[shows(part)])
        return orjson.dumps(wire.encode(request)).decode()

    def test_images(self, provider: str, codec: str):
        assert "iVBORw0KGgo=" in self.written(provider, codec, image(INLINE_PNG))

    def test_text(self, provider: str, codec: str):
        part = {"type": "input_file", "filename": "a.txt", "file_data": INLINE_TEXT}
        sent = self.written(provider, codec, part)
        assert "Hello" in sent or "SGVsbG8=" in sent

    def test_pdf(self, provider: str, codec: str):
        part = {"type": "input_file", "filename": "a.pdf", "file_data": INLINE_PDF}
        if getattr(all_providers()[provider].codec(codec), "files", True):
            assert "JVBERi0xLjc=" in self.written(provider, codec, part)
            return
        with pytest.raises(BadRequest, match=r"'a\.pdf'; send its text"):
            self.written(provider, codec, part)


PDF_PART = {"type": "input_file", "filename": "a.pdf", "file_data": INLINE_PDF}


async def test_a_file_that_the_wire_has_no_word_for_is_refused_before_it_is_sent(web):
    route = route_at("groq")
    with pytest.raises(
        BadRequest, match="The model 'a' cannot read files of this type"
    ):
        await sent_content(route, shows(PDF_PART))


async def test_one_that_an_earlier_model_was_shown_does_not_end_the_conversation(web):
    route, call = route_at("groq"), ProviderCall()
    receiving = host(web, route)
    past = [shows(PDF_PART), message("assistant", "A file."), user_message("Sure?")]
    await sent_content(route, *past, call=call)
    assert "that you cannot read" in receiving.requests[0]["messages"][0]["content"]
    assert call.degraded == ["input (without input_file)"]
