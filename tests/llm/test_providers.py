"""What every provider owes, old or new: a file in `llm/providers` is tested as is."""

from __future__ import annotations

import pkgutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest
import respx

from llm import models, providers, router
from llm.errors import (
    ContextTooLarge,
    CutOff,
    InvalidKey,
    LLMError,
    ModelNotAvailable,
    ProviderDown,
    ProviderTimeout,
    RateLimited,
)
from llm.http import client
from llm.provider import Endpoint, Provider
from llm.providers import all_providers, choices
from llm.wire.deltas import Delta, FinishDelta, TextDelta, UsageDelta
from llm.wire.items import function_call_output, user_message
from llm.wire.request import Request
from llm.wire.response_builder import ResponseBuilder
from tests.llm.canned import canned

CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"at": "it"}',
    "status": "completed",
}
TOOL = {
    "type": "function",
    "name": "look",
    "description": "Looks.",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    "strict": False,
}
PLAIN = Request(model="some/model", items=[user_message("Hello")])
FULL = Request(
    model="some/model",
    instructions="Be brief.",
    items=[
        user_message("Look at it."),
        CALL,
        function_call_output("call_1", "A cat."),
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "And this?"},
                {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0K"},
            ],
        },
    ],
    tools=[TOOL],
    tool_choice="auto",
    max_output_tokens=100,
    temperature=0.5,
    reasoning={"effort": "low"},
    text={"format": {"type": "json_object"}},
)
CODECS = [
    pytest.param(provider, codec, id=f"{provider.name}-{name}")
    for provider in all_providers().values()
    for name, codec in provider.codecs.items()
]
each_provider = pytest.mark.parametrize(
    "provider", all_providers().values(), ids=list(all_providers())
)
each_codec = pytest.mark.parametrize(("provider", "codec"), CODECS)


def test_every_file_declares_the_provider_it_is_named_after():
    files = {module.name for module in pkgutil.iter_modules(providers.__path__)}
    assert files == set(all_providers())


def test_the_choices_are_sorted_and_labelled():
    assert choices() == sorted((p.name, p.label) for p in all_providers().values())


def test_no_two_providers_read_the_same_variable():
    names = Counter(
        name for provider in all_providers().values() for name in provider.variables()
    )
    assert [name for name, count in names.items() if count > 1] == []


@each_provider
class TestProvider:
    def test_a_provider_has_an_address_or_requires_one(self, provider: Provider):
        if provider.needs_base_url:
            assert provider.base_url_env
        else:
            assert provider.base_url.startswith(
                ("https://", "http://localhost", "self:")
            )
        assert not provider.base_url.endswith("/")

    def test_can_be_named_in_the_environment(self, provider: Provider):
        ours = provider.base_url.startswith("self:")  # has its key from ourselves
        assert provider.key_env or ours or not provider.needs_key
        for name in provider.variables():
            assert name == name.upper()
            # The settings' table and ENABLE_… go by the kind's own name.
            assert name.startswith(f"{provider.name.upper()}_")

    def test_options_document_their_type(self, provider: Provider):
        names = [option.name for option in provider.options]
        assert len(names) == len(set(names))
        assert set(provider.secret_options) <= set(names)
        assert provider.problem({}) == ""
        assert provider.label in provider.problem({"no such": "option"})
        for option in provider.options:
            assert option.wanted in provider.problem({option.name: 7})

    def test_tidying_an_address_twice_is_tidying_it_once(self, provider: Provider):
        address = provider.base_url or "https://host.example/v1"
        once = provider.tidy(address, {})
        assert provider.tidy(*once) == once

    def test_shows_the_key_in_a_header(self, provider: Provider):
        assert any("sk-1" in value for value in provider.auth("sk-1").values())

    def test_shows_no_key_where_none_is_needed(self, provider: Provider):
        assert provider.needs_key or provider.auth("") == {}

    def test_hides_the_key_from_reprs(self, provider: Provider):
        codec = provider.codec()
        endpoint = Endpoint(provider=provider, codec=codec, api_key="sk-secret")
        assert "sk-secret" not in repr(endpoint)

    def test_has_a_usual_codec_and_no_unknown_one(self, provider: Provider):
        assert provider.codec() is next(iter(provider.codecs.values()))
        with pytest.raises(KeyError):
            provider.codec("morse")

    def test_codecs_go_by_their_own_names(self, provider: Provider):
        assert [codec.name for codec in provider.codecs.values()] == list(
            provider.codecs
        )


@each_codec
class TestCodec:
    def test_encodes_a_plain_request(self, provider, codec):
        body = codec.encode(PLAIN)
        assert b"Hello" in orjson.dumps(body)
        assert codec.path(PLAIN).startswith("/")

    def test_encodes_calls_outputs_pictures_and_options(self, provider, codec):
        sent = orjson.dumps(codec.encode(FULL))
        for text in (b"Be brief.", b"look", b"A cat.", b"And this?", b"iVBORw0K"):
            assert text in sent

    def test_the_models_extras_have_the_last_word(self, provider, codec):
        request = Request(model="m", items=PLAIN.items, extra={"model": "other"})
        assert codec.encode(request)["model"] == "other"

    def test_any_error_body_becomes_ours(self, provider, codec):
        bodies = [b"", b"<html>", b'{"error":{"message":"x"}}']
        for status in (400, 401, 403, 404, 429, 500, 503, 529):
            for body in bodies:
                error = codec.error(status, {}, body)
                assert isinstance(error, LLMError), (status, body)
                assert error.upstream_status == status, body

    def test_an_empty_stream_is_an_error(self, provider, codec):
        with pytest.raises(LLMError):
            list(codec.decoder().close())

    def test_an_answer_that_is_none_is_an_error(self, provider, codec):
        for body in (b"", b"<html>", b"[]", b"{}", b'{"error":"x"}'):
            with pytest.raises(LLMError):
                list(codec.decode(body))


# A call over HTTP

QUESTION = Request(model="some/model", items=[user_message("Hello")])
ERROR_CLASSES = {  # by the name of the error in `tests.llm.canned`
    "bad_key": InvalidKey,
    "rate_limit": RateLimited,
    "too_large": ContextTooLarge,
    "down": ProviderDown,
}
STATUS_CLASSES = {
    401: InvalidKey,
    404: ModelNotAvailable,
    413: ContextTooLarge,
    429: RateLimited,
    500: ProviderDown,
    502: ProviderDown,
    503: ProviderDown,
    504: ProviderTimeout,
}
KEY = "sk-planted-0123456789"


def endpoint_of(provider: Provider, codec: Any) -> Endpoint:
    address = "" if provider.base_url else "https://host.example/v1"
    return provider.connect(
        Endpoint(provider=provider, codec=codec, api_key=KEY, base_url=address)
    )


async def call_provider(
    provider: Provider, codec: Any, *, stream: bool = True
) -> tuple[list[Delta], LLMError | None]:
    """All deltas of a call, and the error that ends it."""
    deltas: list[Delta] = []
    request = replace(QUESTION, stream=stream)
    calling = client.stream(endpoint_of(provider, codec), request)
    try:
        async with aclosing(calling) as batches:
            async for batch in batches:
                deltas += batch
    except LLMError as exc:
        return deltas, exc
    return deltas, None


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def counts_of(deltas: list[Delta]) -> tuple[int | None, int | None]:
    read = written = None
    for delta in deltas:
        if isinstance(delta, UsageDelta):
            read = read if delta.input_tokens is None else delta.input_tokens
            written = written if delta.output_tokens is None else delta.output_tokens
    return read, written


class Frames(httpx.AsyncByteStream):
    """A body in pieces; what is raised at its end, if anything."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece


@pytest.fixture
async def host() -> AsyncIterator[respx.Route]:
    """This reply is given at every address."""
    with respx.mock(using="parley") as router:
        yield router.post(url__regex=".*")
    await client.aclose()


@each_codec
class TestCall:
    async def test_an_answer_that_streams(self, provider, codec, host):
        frames = canned(codec).frames
        host.return_value = httpx.Response(200, stream=Frames(*frames))
        deltas, error = await call_provider(provider, codec)
        assert error is None
        assert text_of(deltas) == "Hello"
        assert counts_of(deltas) == (9, 2)
        finish = [delta for delta in deltas if isinstance(delta, FinishDelta)][-1]
        assert finish.reason == "stop"

    async def test_an_answer_in_one_piece(self, provider, codec, host):
        host.respond(200, content=canned(codec).whole)
        deltas, error = await call_provider(provider, codec, stream=False)
        assert error is None
        assert text_of(deltas) == "Hello"
        assert counts_of(deltas) == (9, 2)

    async def test_the_key_is_shown_in_a_header_and_nowhere_else(
        self, provider, codec, host
    ):
        host.respond(200, content=canned(codec).stream)
        await call_provider(provider, codec)
        sent = host.calls.last.request
        assert any(KEY in value for value in sent.headers.values())
        assert KEY not in str(sent.url)
        assert KEY.encode() not in sent.content

    async def test_text_comes_as_it_is_written_and_usage_with_the_last_event(
        self, provider, codec, host
    ):
        frames = canned(codec).frames
        host.return_value = httpx.Response(200, stream=Frames(*frames))
        builder = ResponseBuilder(id="resp_1", model="m", created_at=1)
        events = builder.start()
        builder.begin_call()
        stream = client.stream(endpoint_of(provider, codec), QUESTION)
        async with aclosing(stream) as batches:
            async for batch in batches:
                events += builder.feed(batch)
        events += [*builder.end_call(), *builder.complete()]
        *before, last = events
        texts = [e["delta"] for e in before if e["type"].endswith("text.delta")]
        assert texts == ["Hel", "lo"]
        assert not any((e.get("response") or {}).get("usage") for e in before)
        assert last["response"]["usage"]["total_tokens"] == 11

    @pytest.mark.parametrize("stream", [True, False])
    async def test_an_error_has_its_class(self, provider, codec, host, stream):
        for name, expected in ERROR_CLASSES.items():
            status, body = getattr(canned(codec), name)
            host.respond(status, content=body, headers={"retry-after": "7"})
            deltas, error = await call_provider(provider, codec, stream=stream)
            assert deltas == [], name
            assert type(error) is expected, name
            assert error.retry_after == 7, name
            assert error.provider == provider.name, name
            assert KEY not in f"{error!r}{error.detail}", name

    async def test_a_bare_status_code_is_classified(self, provider, codec, host):
        for status, expected in STATUS_CLASSES.items():
            host.respond(status, content=b"")
            _, error = await call_provider(provider, codec)
            assert type(error) is expected, status

    async def test_no_answer_in_time(self, provider, codec, host):
        host.side_effect = httpx.ReadTimeout("slow")
        _, error = await call_provider(provider, codec)
        assert type(error) is ProviderTimeout

    @pytest.mark.parametrize("end", [[], [httpx.ReadError("reset")]])
    async def test_a_truncated_stream_keeps_its_text(self, provider, codec, host, end):
        body = Frames(canned(codec).begun, *end)
        host.return_value = httpx.Response(200, stream=body)
        deltas, error = await call_provider(provider, codec)
        assert text_of(deltas) == "Hello"
        assert type(error) is CutOff

    async def test_an_error_inside_the_stream_keeps_its_text(
        self, provider, codec, host
    ):
        body = Frames(canned(codec).begun, canned(codec).failure)
        host.return_value = httpx.Response(200, stream=body)
        deltas, error = await call_provider(provider, codec)
        assert text_of(deltas) == "Hello"
        assert type(error) is ProviderDown

    async def test_an_error_in_place_of_a_stream(self, provider, codec, host):
        _, body = canned(codec).down
        host.respond(200, json=orjson.loads(body))
        _, error = await call_provider(provider, codec)
        assert type(error) is ProviderDown


@each_provider
@pytest.mark.django_db
def test_is_refused_where_the_environment_switches_it_off(
    provider: Provider, settings: Any
):
    row = models.Provider.objects.create(
        name="Theirs", kind=provider.name, base_url="https://host.example/v1"
    )
    row.keys.create(secret=KEY)
    model = row.models.create(name="some-model")
    assert router.resolve("some-model").model_id == model.pk
    settings.DISABLED_PROVIDERS = frozenset({provider.name})
    with pytest.raises(ModelNotAvailable, match=f"ENABLE_{provider.name.upper()}"):
        router.resolve("some-model")
    assert not router.available(None).exists()
