"""What every provider owes, old or new: a file in `llm/providers` is tested as is."""

from __future__ import annotations

import pkgutil
from collections import Counter

import orjson
import pytest

from llm import providers
from llm.errors import LLMError
from llm.provider import Endpoint, Provider
from llm.providers import all_providers, choices
from llm.wire.items import function_call_output, user_message
from llm.wire.request import Request

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
        name
        for provider in all_providers().values()
        for name in (provider.key_env, provider.model_env, provider.base_url_env)
        if name
    )
    assert [name for name, count in names.items() if count > 1] == []


@each_provider
class TestProvider:
    def test_has_an_address_or_asks_for_one(self, provider: Provider):
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
        for name in (provider.key_env, provider.model_env, provider.base_url_env):
            assert name == name.upper()

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
        for told in (b"Be brief.", b"look", b"A cat.", b"And this?", b"iVBORw0K"):
            assert told in sent

    def test_the_models_extras_have_the_last_word(self, provider, codec):
        request = Request(model="m", items=PLAIN.items, extra={"model": "other"})
        assert codec.encode(request)["model"] == "other"

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 503, 529])
    @pytest.mark.parametrize("body", [b"", b"<html>", b'{"error":{"message":"x"}}'])
    def test_any_error_body_becomes_ours(self, provider, codec, status, body):
        error = codec.error(status, {}, body)
        assert isinstance(error, LLMError)
        assert error.upstream_status == status

    def test_an_empty_stream_is_an_error(self, provider, codec):
        with pytest.raises(LLMError):
            list(codec.decoder().close())

    @pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"error":"x"}'])
    def test_an_answer_that_is_none_is_an_error(self, provider, codec, body):
        with pytest.raises(LLMError):
            codec.decode(body)
