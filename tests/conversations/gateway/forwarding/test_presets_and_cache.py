"""A preset or a cache leaves the client's body as it is, beside what each adds."""

from __future__ import annotations

import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations.models import AccessToken, ContextSource, Preset
from conversations.models.preset import PresetSource
from llm.models import LanguageModel
from tests.conversations.gateway.forwarding.hosts import (
    CODECS,
    FORWARDED,
    PATHS,
    Answer,
    Client,
    Host,
    Received,
    Reply,
    add_model,
    canned_reply,
)
from tools.models import Tool

pytestmark = pytest.mark.django_db(transaction=True)

_HOUR = {"type": "ephemeral", "ttl": "1h"}
_SOURCE = {"type": "text", "media_type": "text/plain", "data": "Once upon a time"}
_HI = [{"role": "user", "content": "Hi"}]
#: What is lost where a body is read and written anew.
BODIES: dict[str, dict[str, Any]] = {
    "chat": {
        "messages": [
            {"role": "system", "content": "In RHYME."},
            {"role": "user", "content": "Hi", "name": "ann", "news": 1},
        ],
        "n": 2,
        "logprobs": True,
        "logit_bias": {"7": 1},
    },
    "messages": {
        "system": [{"type": "text", "text": "In RHYME.", "cache_control": _HOUR}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "source": _SOURCE,
                        "context": "a tale",
                        "citations": {"enabled": True},
                        "cache_control": _HOUR,
                    }
                ],
            },
            {"role": "assistant", "content": "Once"},
        ],
        "max_tokens": 90,
    },
    "responses": {
        "input": [{"role": "user", "content": "Hi", "news": 1}],
        "instructions": "In RHYME.",
        "store": False,
        "truncation": "auto",
        "context_management": [{"type": "compaction"}],
    },
}
#: Where each API has the conversation and its instructions.
_WORDS = frozenset({"instructions", "messages", "system"})


_TWO = {"temperature": 0.5, "top_p": 0.5}
#: Two options of staff. Anthropic's newest API has no temperature.
_STAFFS: dict[str, dict[str, Any]] = {
    "chat": _TWO,
    "messages": {"extra": {"inference_geo": "eu", "speed": "fast"}},
    "responses": _TWO,
}


def _kind(api: str) -> str:
    return "anthropic" if api == "messages" else "openai"


async def _add(host: Host, api: str, **options: Any) -> str:
    return await add_model(
        _kind(api), CODECS[api], host.url, "new-model", options=options
    )


@sync_to_async
def _add_preset(model: str, *tools: str, **fields: Any) -> str:
    row = LanguageModel.objects.get(name=model.partition("/")[2])
    text = "You answer for PARSNIP."
    preset = Preset.objects.create(
        name="support", instructions=text, language_model=row, **fields
    )
    source = ContextSource.objects.create(
        name="hours", title="Hours", text="Open at NINE."
    )
    PresetSource.objects.create(preset=preset, source=source)
    Tool.objects.sync()
    preset.tools.set(Tool.objects.filter(name__in=tools))
    return "preset/support"


def _instructions(api: str, body: dict[str, Any]) -> Any:
    return {
        "chat": lambda: body["messages"][0],
        "messages": lambda: body["system"],
        "responses": lambda: body["instructions"],
    }[api]()


def _check_instructions(api: str, body: dict[str, Any]) -> None:
    """The preset's, the client's own, and the preset's context, in this order."""
    words = json.dumps(_instructions(api, body))
    found = [words.index(w) for w in ("PARSNIP", "RHYME", "NINE")]
    assert found == sorted(found)


@pytest.mark.parametrize("tools", [(), ("calculator",)], ids=["plain", "tools"])
@pytest.mark.parametrize("api", FORWARDED)
async def test_a_preset_adds_its_instructions_and_changes_nothing_else(
    api: str, tools: tuple[str, ...], client: Client
):
    body = dict(BODIES[api])
    if tools and api == "chat":
        del body["n"], body["logprobs"]  # of an answer that is written anew
    with Host(lambda received: canned_reply(api, received)) as host:
        model = await _add(host, api)
        preset = await _add_preset(model, *tools, options=_STAFFS[api])
        answer = await client.post(PATHS[api], {**body, "model": preset})
    assert answer.status == 200, answer.body
    received = host.received[0].body
    _check_instructions(api, received)
    for name in body.keys() - _WORDS:
        assert received[name] == body[name], name
    if api == "messages":
        assert received["messages"] == body["messages"]
        assert received["system"][1] == body["system"][0]
    if api == "chat":
        assert received["messages"][1:] == body["messages"][1:]
    staffs = _STAFFS[api].get("extra", _STAFFS[api])
    assert {name: received[name] for name in staffs} == staffs
    assert received["model"] == "new-model"
    assert ("tools" in received) is bool(tools)


@pytest.mark.parametrize("api", FORWARDED)
async def test_the_answer_of_a_preset_does_not_repeat_its_instructions(
    api: str, client: Client
):
    def repeating(received: Received) -> Reply:
        status, kind, data = canned_reply(api, received)
        whole = {**json.loads(data), "instructions": "You answer for PARSNIP."}
        return status, kind, json.dumps(whole).encode()

    with Host(repeating if api == "responses" else lambda r: canned_reply(api, r)) as h:
        preset = await _add_preset(await _add(h, api))
        answer = await client.post(PATHS[api], {**BODIES[api], "model": preset})
    assert answer.status == 200, answer.body
    assert b"PARSNIP" not in answer.body


_LIMITS = {
    "chat": "max_completion_tokens",
    "messages": "max_tokens",
    "responses": "max_output_tokens",
}


@pytest.mark.parametrize("asked", [None, 20, 90])
@pytest.mark.parametrize("api", FORWARDED)
async def test_a_preset_limits_the_output_of_a_forwarded_body(
    api: str, asked: int | None, client: Client
):
    limit = _LIMITS[api]
    body = {name: value for name, value in BODIES[api].items() if name != limit}
    body |= {limit: asked} if asked else {}
    with Host(lambda received: canned_reply(api, received)) as host:
        model = await _add(host, api, max_output_tokens=70)
        preset = await _add_preset(model, max_tokens=50)
        answer = await client.post(PATHS[api], {**body, "model": preset})
    assert answer.status == 200, answer.body
    assert host.received[0].body[limit] == min(asked or 50, 50)


@pytest.mark.parametrize("api", FORWARDED)
async def test_options_of_staff_count_where_the_client_names_none(
    api: str, client: Client
):
    with Host(lambda received: canned_reply(api, received)) as host:
        model = await _add(host, api, **_STAFFS[api])
        (name, staffs), (other, _) = _STAFFS[api].get("extra", _STAFFS[api]).items()
        body = {**BODIES[api], "model": model, other: 0.75}
        answer = await client.post(PATHS[api], body)
    assert answer.status == 200, answer.body
    assert host.received[0].body[name] == staffs
    assert host.received[0].body[other] == 0.75


# A cache


async def _post_twice(client: Client, api: str, body: dict[str, Any]) -> list[Answer]:
    return [await client.post(PATHS[api], body) for _ in range(2)]


@pytest.mark.parametrize("by_token", [False, True], ids=["model", "token"])
@pytest.mark.parametrize("api", FORWARDED)
async def test_a_cache_forwards_what_it_cannot_store(
    api: str, by_token: bool, client: Client
):
    """Of several answers, a prefill and a function of the client none is stored."""
    function = {"name": "look", "parameters": {"type": "object"}, "news": 1}
    tools = {
        "chat": {"type": "function", "function": function},
        "messages": {"name": "look", "input_schema": {"type": "object"}, "news": 1},
        "responses": {"type": "function", **function},
    }
    body = {**BODIES[api], "tools": [tools[api]]}
    with Host(lambda received: canned_reply(api, received)) as host:
        model = await _add(host, api, **({} if by_token else {"cache_seconds": 60}))
        if by_token:
            await AccessToken.objects.aupdate(cache_seconds=60)
        answers = await _post_twice(client, api, {**body, "model": model})
    assert [answer.status for answer in answers] == [200, 200], answers[0].body
    assert len(host.received) == 2
    for received in host.received:
        assert {n: received.body[n] for n in body} == body


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", FORWARDED)
async def test_a_stored_answer_has_the_bytes_of_the_host(
    api: str, stream: bool, client: Client
):
    body: dict[str, Any] = {"chat": {"messages": _HI, "news": 1}}.get(api, BODIES[api])
    if api == "messages":
        body = {**body, "messages": _HI}
    with Host(lambda received: canned_reply(api, received)) as host:
        model = await _add(host, api, cache_seconds=60)
        body = {**body, "model": model, "stream": stream}
        first, second = await _post_twice(client, api, body)
        assert first.status == 200, first.body
        other = await client.post(PATHS[api], {**body, "news": 2})
    assert [a.headers["x-parley-cache"] for a in (first, second, other)] == [
        "miss",
        "hit",
        "miss",
    ]
    assert second.body == first.body
    assert b"Hi" in first.body
    assert len(host.received) == 2
    received = host.received[0].body
    for name in body.keys() - {"model"}:
        assert received[name] == body[name], name
    plain = json.loads(canned_reply(api, host.received[0])[2]) if not stream else None
    assert plain is None or first.json() == plain


async def test_an_answer_that_is_no_text_is_not_stored(client: Client):
    def odd(received: Received) -> Reply:
        status, kind, data = canned_reply("chat", received)
        return status, kind, data.replace(b'"Hi"', b'"Hi\xff"')

    with Host(odd) as host:
        model = await _add(host, "chat", cache_seconds=60)
        body = {"messages": _HI, "model": model, "stream": True}
        await _post_twice(client, "chat", body)
    assert len(host.received) == 2


async def test_an_explained_answer_comes_from_the_cache_too(client: Client):
    with Host(lambda received: canned_reply("chat", received)) as host:
        model = await _add(host, "chat", cache_seconds=60)
        body = {"messages": _HI, "model": model, "news": 1}
        plain = await client.post(PATHS["chat"], body)
        explained = await _post_twice(
            client, "chat", {**body, "parley": {"explain": True}}
        )
    assert plain.headers["x-parley-cache"] == "miss"
    assert [a.headers["x-parley-cache"] for a in explained] == ["miss", "hit"]
    assert host.received[1].body["news"] == 1


async def test_what_is_written_anew_names_what_its_own_host_does_not_get(
    client: Client,
):
    body = {
        **BODIES["messages"],
        "tools": [{"name": "look", "input_schema": {"type": "object"}, "news": 1}],
        "parley": {"ignore_invalid_options": True},
    }
    with Host(lambda received: canned_reply("messages", received)) as host:
        model = await _add(host, "messages")
        answer = await client.post(PATHS["messages"], {**body, "model": model})
    assert answer.status == 200, answer.body
    named = answer.headers["x-parley-degraded"].split(", ")
    assert {"cache_control", "messages.citations", "messages.context"} <= {*named}
    assert "tools.news" not in named
    assert host.received[0].body["tools"][0]["news"] == 1


# Models that a body names besides


@pytest.mark.parametrize("name", ["other", "other:free", "unknown"])
async def test_a_body_reaches_no_model_that_its_preset_does_not_allow(
    name: str, client: Client
):
    with Host(lambda received: canned_reply("chat", received)) as host:
        model = await _add(host, "chat")
        await add_model("openai", CODECS["chat"], host.url, "other")
        await add_model("openai", CODECS["chat"], host.url, "friend")
        preset = await _add_preset(model)
        row = await Preset.objects.aget()
        friends = LanguageModel.objects.filter(name__in=["new-model", "friend"])
        await row.allowed_models.aset([each async for each in friends])
        body = {"messages": _HI, "model": preset}
        refused = await client.post(PATHS["chat"], {**body, "models": ["friend", name]})
        assert not host.received
        taken = await client.post(PATHS["chat"], {**body, "models": ["friend"]})
    assert refused.status == 403
    assert b"E_MODEL_NOT_IN_PRESET" in refused.body
    assert taken.status == 200, taken.body
    assert host.received[0].body["models"] == ["friend"]


async def test_a_fallback_may_not_write_more_than_the_preset_allows(client: Client):
    with Host(lambda received: canned_reply("messages", received)) as host:
        preset = await _add_preset(await _add(host, "messages"), max_tokens=50)
        body = {**BODIES["messages"], "model": preset}
        fallback = {"model": "claude-haiku-4-5", "max_tokens": 60}
        answer = await client.post(PATHS["messages"], {**body, "fallbacks": [fallback]})
    assert answer.status == 400
    assert not host.received
