"""`fallbacks` and other fields with models that a host may call: the rights of `model`
hold."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from conversations.models import AccessToken
from llm.models import LanguageModel, Provider
from tests.conversations.gateway.forwarding.hosts import (
    CODECS,
    PATHS,
    Answer,
    Client,
    Host,
    add_model,
    canned_reply,
)

pytestmark = pytest.mark.django_db(transaction=True)

#: Ways to name the model `other`, and the parameter that an error names.
FIELDS: dict[str, tuple[str, dict[str, Any]]] = {
    "fallbacks[0].model": ("messages", {"fallbacks": [{"model": "other"}]}),
    "fallbacks": ("messages", {"fallbacks": "other"}),
    "tools[0].model": (
        "messages",
        {"tools": [{"type": "advisor_20260301", "name": "advisor", "model": "other"}]},
    ),
    "fallbacks[0]": ("chat", {"fallbacks": ["other"]}),
    "fallbacks[0].first[1]": ("chat", {"fallbacks": [{"first": ["first", "other"]}]}),
    "content_policy_fallbacks[0].first[0]": (
        "chat",
        {"content_policy_fallbacks": [{"first": ["other"]}]},
    ),
    "compound_custom.models.answering_model": (
        "chat",
        {"compound_custom": {"models": {"answering_model": "other"}}},
    ),
}


EACH_FIELD = pytest.mark.parametrize("param", FIELDS)


async def ask(
    client: Client, param: str, *, names: Sequence[str] = (), **row: Any
) -> tuple[Answer, int]:
    """The answer to a body that names `other`, of which the host has a row, and how
    often the host was asked. The token may use `names`; () for all models."""
    api, fields = FIELDS[param]
    kind = "anthropic" if api == "messages" else "openai_compatible"
    with Host(lambda received: canned_reply(api, received)) as host:
        await add_model(kind, CODECS[api], host.url, "first")
        await prepare(names, row)
        messages = [{"role": "user", "content": "Hi"}]
        body = {"model": "first", "messages": messages, "max_tokens": 50, **fields}
        return await client.post(PATHS[api], body), len(host.received)


@sync_to_async
def prepare(names: Sequence[str], row: Mapping[str, Any]) -> None:
    provider = Provider.objects.get(models__name="first")
    LanguageModel.objects.create(provider=provider, name="other", **row)
    rows = LanguageModel.objects.filter(name__in=names)
    AccessToken.objects.get().allowed_models.set(rows)


@EACH_FIELD
async def test_a_token_with_a_list_reaches_no_other_model(client: Client, param: str):
    answer, asked = await ask(client, param, names=["first"])
    assert (answer.status, asked) == (404, 0), answer.body
    error = json.loads(answer.body)["error"]
    assert "'other'" in error["message"]
    assert error.get("param", param) == param


@EACH_FIELD
async def test_a_disabled_model_is_reached_by_nobody(client: Client, param: str):
    answer, asked = await ask(client, param, enabled=False)
    assert (answer.status, asked) == (404, 0), answer.body


@EACH_FIELD
async def test_a_model_of_the_token_is_reached(client: Client, param: str):
    answer, asked = await ask(client, param, names=["first", "other"])
    assert (answer.status, asked) == (200, 1), answer.body


@pytest.mark.parametrize("wanted", [101, 1e6, "101"])
async def test_a_fallback_writes_no_more_than_staff_allow(client: Client, wanted: Any):
    fallbacks = [{"model": "other"}, {"model": "other", "max_tokens": wanted}]
    with Host(lambda received: canned_reply("messages", received)) as host:
        limits = {"max_output_tokens": 100}
        await add_model("anthropic", "anthropic", host.url, "first", **limits)
        messages = [{"role": "user", "content": "Hi"}]
        body = {"model": "first", "messages": messages, "max_tokens": 50}
        path = PATHS["messages"]
        answer = await client.post(path, {**body, "fallbacks": fallbacks})
        assert (answer.status, host.received) == (400, [])
        assert b"fallbacks[1].max_tokens" in answer.body
        fallbacks[1]["max_tokens"] = 100
        answer = await client.post(path, {**body, "fallbacks": fallbacks})
        assert answer.status == 200, answer.body
        assert host.received[0].body["fallbacks"] == fallbacks


@pytest.mark.parametrize(
    "fallbacks",
    [[{"model": 7}], [{"model": 301 * "a"}], 51 * ["a"], [{"a": 51 * ["b"]}]],
)
async def test_what_names_no_model_is_refused(client: Client, fallbacks: Any):
    with Host(lambda received: canned_reply("chat", received)) as host:
        await add_model("openai_compatible", "openai_chat", host.url, "first")
        body = {"model": "first", "messages": [{"role": "user", "content": "Hi"}]}
        answer = await client.post(PATHS["chat"], {**body, "fallbacks": fallbacks})
        assert (answer.status, host.received) == (400, [])
    assert json.loads(answer.body)["error"]["param"].startswith("fallbacks")


async def test_lists_inside_lists_are_left_to_the_host(client: Client):
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    with Host(lambda received: canned_reply("chat", received)) as host:
        await add_model("openai_compatible", "openai_chat", host.url, "first")
        body = {"model": "first", "messages": [{"role": "user", "content": "Hi"}]}
        answer = await client.post(PATHS["chat"], {**body, "fallbacks": deep})
        assert answer.status == 200, answer.body
