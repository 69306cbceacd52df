"""Programs call one name, and several hosts answer: by weight, by load, and each in
place of another that fails."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.test import AsyncClient

from conversations import engine
from conversations.models import AccessToken
from llm.models import LanguageModel, ModelPool
from llm.pools import load
from tests.conversations.gateway.forwarding.hosts import (
    PATHS,
    Client,
    Host,
    Received,
    Reply,
    add_model,
    canned_reply,
)

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.smoke,
]

BODIES: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "Hi"}]},
    "messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 9},
    "responses": {"input": "Hi", "store": False},
}


@pytest.fixture(autouse=True)
def _no_load() -> Iterator[None]:
    load.running.clear()
    load.failures.clear()
    yield
    load.running.clear()
    load.failures.clear()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = await Client().open()
    yield client
    await client.close()


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(Host(lambda got: canned_reply("chat", got)))
            for _ in range(3)
        ]


async def create_pool(hosts: list[Host], weights: list[int], **fields: Any) -> None:
    pool = await ModelPool.objects.acreate(name="fast", **fields)
    for number, (host, weight) in enumerate(zip(hosts, weights, strict=False)):
        # No retry: what one host does not answer is the next one's.
        options = {"retry": {"attempts": 1}}
        name = await add_model(
            ["openai", "mistral", "groq"][number],
            "openai_chat",
            host.url,
            f"model-{number}",
            options=options,
        )
        provider, _, model = name.partition("/")
        row = await LanguageModel.objects.aget(provider__name=provider, name=model)
        await pool.members.acreate(model=row, weight=weight)


def refuse(received: Received) -> Reply:
    return 503, "application/json", json.dumps({"error": {"message": "Down"}}).encode()


def counts(hosts: list[Host]) -> list[int]:
    return [len(host.received) for host in hosts]


@pytest.mark.parametrize("api", BODIES)
async def test_each_api_is_answered_by_a_host_of_the_pool(client, hosts, api):
    await create_pool(hosts, [1, 1])
    for _ in range(12):
        answer = await client.post(PATHS[api], {**BODIES[api], "model": "fast"})
        assert answer.status == 200, answer.body
    assert sum(counts(hosts)) == 12
    assert counts(hosts)[2] == 0
    names = {each.body["model"] for host in hosts for each in host.received}
    assert names <= {"model-0", "model-1"}


async def test_a_host_that_fails_is_replaced_at_once_and_then_called_last(
    client, hosts
):
    hosts[0].reply = refuse
    await create_pool(hosts, [1000, 1])
    for _ in range(12):
        answer = await client.post(PATHS["chat"], {**BODIES["chat"], "model": "fast"})
        assert answer.status == 200, answer.body
    assert counts(hosts)[0] == load.FAILURES
    assert counts(hosts)[1] == 12


async def test_a_host_of_weight_0_answers_only_if_the_others_cannot(client, hosts):
    await create_pool(hosts, [0, 1])
    for _ in range(5):
        await client.post(PATHS["chat"], {**BODIES["chat"], "model": "fast"})
    assert counts(hosts)[:2] == [0, 5]
    hosts[1].reply = refuse
    answer = await client.post(PATHS["chat"], {**BODIES["chat"], "model": "fast"})
    assert answer.status == 200
    assert counts(hosts)[:2] == [1, 6]


async def test_a_conversation_stays_with_its_host(client, hosts):
    await create_pool(hosts, [1, 1, 1])
    for number in range(6):
        messages = [
            {"role": "user", "content": f"Question {number}"},
            {"role": "assistant", "content": "Answer"},
        ]
        before = counts(hosts)
        for step in range(4):
            messages.append({"role": "user", "content": f"More {step}"})
            body = {"messages": messages, "model": "fast"}
            assert (await client.post(PATHS["chat"], body)).status == 200
        grown = [now - then for now, then in zip(counts(hosts), before, strict=True)]
        assert sorted(grown) == [0, 0, 4]


async def test_the_least_busy_host_is_called(client, hosts):
    await create_pool(hosts, [1, 1], strategy="least_busy")
    busy = await LanguageModel.objects.aget(name="model-0")
    load.running[busy.pk] = 3
    for _ in range(6):
        await client.post(PATHS["chat"], {**BODIES["chat"], "model": "fast"})
    assert counts(hosts)[:2] == [0, 6]
    assert load.running[busy.pk] == 3
    assert sum(load.running.values()) == 3  # those that ended are not counted


async def test_all_hosts_down_is_one_clear_error(client, hosts):
    for host in hosts:
        host.reply = refuse
    await create_pool(hosts, [1, 1])
    answer = await client.post(PATHS["chat"], {**BODIES["chat"], "model": "fast"})
    assert answer.status == 503
    assert counts(hosts)[:2] == [1, 1]


async def test_hosts_of_other_groups_and_other_models_of_a_token_are_left_out(
    client, hosts
):
    await create_pool(hosts, [1, 1, 1])
    token = await AccessToken.objects.aget()
    user = token.user_id
    await (
        type(await sync_to_async(lambda: token.user)())
        .objects.filter(pk=user)
        .aupdate(is_superuser=False)
    )
    closed = await LanguageModel.objects.aget(name="model-0")
    await closed.groups.aadd(await Group.objects.acreate(name="others"))
    allowed = await LanguageModel.objects.aget(name="model-1")
    await token.allowed_models.aset([allowed, closed])
    for _ in range(8):
        answer = await client.post(PATHS["chat"], {**BODIES["chat"], "model": "fast"})
        assert answer.status == 200, answer.body
    assert counts(hosts) == [0, 8, 0]


async def test_a_pool_is_listed_for_a_token_that_may_use_its_second_host(client, hosts):
    await create_pool(hosts, [1, 1, 1])
    token = await AccessToken.objects.aget()
    allowed = await LanguageModel.objects.aget(name="model-1")
    await token.allowed_models.aset([allowed])
    listed = await client.get("/v1/models")
    assert "fast" in [each["id"] for each in listed.json()["data"]]
    assert (await client.get("/v1/models/fast")).status == 200
    await token.allowed_models.aset([await a_model_of_no_pool()])
    assert (await client.get("/v1/models/fast")).status == 404


@sync_to_async
def a_model_of_no_pool() -> LanguageModel:
    provider = LanguageModel.objects.get(name="model-1").provider
    return LanguageModel.objects.create(provider=provider, name="alone")


async def test_a_pool_without_a_host_that_may_be_called_is_no_model(client, hosts):
    await create_pool(hosts, [1])
    await LanguageModel.objects.aupdate(enabled=False)
    answer = await client.post(PATHS["chat"], {**BODIES["chat"], "model": "fast"})
    assert answer.status == 404
    assert "fast" in answer.json()["error"]["message"]


# Stored responses and chats: turns of the engine


class Rest:
    """Calls `/api/` with the gateway client's token."""

    def __init__(self, client: Client) -> None:
        self.headers = {"authorization": f"Bearer {client.secret}"}

    async def send(self, method: str, path: str, body: Any) -> Any:
        send = getattr(AsyncClient(), method)
        return await send(
            path, body, content_type="application/json", headers=self.headers
        )


STORED: dict[str, Any] = {"input": "Hi", "model": "fast"}


async def test_a_stored_response_is_answered_by_another_host_of_the_pool(
    client, hosts, running
):
    hosts[0].reply = refuse
    await create_pool(hosts, [1000, 1])
    for _ in range(6):
        answer = await client.post(PATHS["responses"], STORED)
        assert answer.status == 200, answer.body
        assert answer.json()["model"] == "fast"
    assert counts(hosts)[0] == load.FAILURES  # then it cools down
    assert counts(hosts)[1] == 6


async def test_stored_responses_take_the_least_busy_host(client, hosts, running):
    await create_pool(hosts, [1, 1], strategy="least_busy")
    busy = await LanguageModel.objects.aget(name="model-0")
    load.running[busy.pk] = 3
    for _ in range(4):
        assert (await client.post(PATHS["responses"], STORED)).status == 200
    assert counts(hosts)[:2] == [0, 4]


async def test_a_stored_conversation_stays_with_its_host(client, hosts, running):
    await create_pool(hosts, [1, 1, 1])
    for _ in range(4):
        before, previous = counts(hosts), None
        for _ in range(3):
            body = {**STORED, "previous_response_id": previous}
            answer = await client.post(PATHS["responses"], body)
            previous = answer.json()["id"]
        grown = [now - then for now, then in zip(counts(hosts), before, strict=True)]
        assert sorted(grown) == [0, 0, 3]


async def test_stored_responses_keep_to_the_models_of_their_token(
    client, hosts, running
):
    await create_pool(hosts, [1, 1, 1])
    token = await AccessToken.objects.aget()
    await token.allowed_models.aset([await LanguageModel.objects.aget(name="model-1")])
    for _ in range(6):
        assert (await client.post(PATHS["responses"], STORED)).status == 200
    assert counts(hosts) == [0, 6, 0]


@pytest.mark.parametrize("whose", ["conversation", "turn"])
async def test_a_chat_of_a_pool_is_answered_by_any_of_its_hosts(
    client, hosts, running, whose
):
    hosts[0].reply = refuse
    await create_pool(hosts, [1000, 1])
    rest = Rest(client)
    named = {"model": "fast"}
    made = await rest.send(
        "post", "/api/conversations/", named if whose == "conversation" else {}
    )
    assert made.status_code == 201, made.content
    turns = f"/api/conversations/{made.json()['id']}/turns/"
    for _ in range(5):
        body = {"input": "Hi", **(named if whose == "turn" else {})}
        opened = await rest.send("post", turns, body)
        response = await engine.response_of(opened.json()["id"])
        assert response["status"] == "completed", response
    assert counts(hosts)[:2] == [load.FAILURES, 5]


async def test_a_model_chosen_instead_of_the_pool_is_the_only_one(
    client, hosts, running
):
    hosts[0].reply = refuse
    await create_pool(hosts, [1000, 1])
    rest = Rest(client)
    made = await rest.send("post", "/api/conversations/", {"model": "fast"})
    address = f"/api/conversations/{made.json()['id']}/"
    one = await LanguageModel.objects.select_related("provider").aget(name="model-0")
    await rest.send("patch", address, {"model": one.full_name})
    opened = await rest.send("post", f"{address}turns/", {"input": "Hi"})
    response = await engine.response_of(opened.json()["id"])
    assert response["status"] == "failed"
    assert counts(hosts) == [1, 0, 0]
