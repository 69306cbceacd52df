"""`models`, which OpenRouter calls instead of `model`: the rights of `model` hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group, User

from conversations.access import budget
from conversations.access.limits.admission import find_limits_left
from conversations.access.limits.applicable import clear_cache
from conversations.models import AccessToken, UsageLimit
from llm.models import LanguageModel, ModelCall, Provider
from tests.conversations.gateway.forwarding.hosts import (
    PATHS,
    Answer,
    Client,
    Host,
    Received,
    Reply,
    add_model,
    canned_reply,
)

pytestmark = pytest.mark.django_db(transaction=True)


@sync_to_async
def store(names: Sequence[str], **fields: Any) -> None:
    for name in names:
        LanguageModel.objects.create(
            provider=Provider.objects.get(models__name="first"), name=name, **fields
        )


@sync_to_async
def allow_only(*names: str) -> None:
    rows = LanguageModel.objects.filter(name__in=names)
    AccessToken.objects.get().allowed_models.set(rows)


@pytest.fixture
async def host(client: Client) -> AsyncIterator[Host]:
    with Host(lambda received: canned_reply("chat", received)) as host:
        await add_model("openai", "openai_chat", host.url, "first")
        yield host


async def ask(client: Client, host: Host, models: object) -> tuple[Answer, list[Any]]:
    """The answer, and what the host received as `models`."""
    host.received.clear()
    messages = [{"role": "user", "content": "Hi"}]
    body = {"model": "first", "messages": messages, "models": models}
    answer = await client.post(PATHS["chat"], body)
    return answer, [received.body.get("models") for received in host.received]


async def test_a_token_without_a_list_sends_names_that_only_the_host_knows(
    client: Client, host: Host
):
    sent = ["vendor/one", "vendor/two:free"]
    answer, got = await ask(client, host, sent)
    assert (answer.status, got) == (200, [sent])


@pytest.mark.parametrize("name", ["second", "second:free", "unknown"])
async def test_a_token_with_a_list_reaches_no_other_model(
    client: Client, host: Host, name: str
):
    await store(["second", "third"])
    await allow_only("first", "third")
    answer, got = await ask(client, host, ["third", name])
    assert (answer.status, got) == (404, [])
    error = json.loads(answer.body)["error"]
    assert error["param"] == "models[1]"
    answer, got = await ask(client, host, ["third", "third:nitro"])
    assert (answer.status, got) == (200, [["third", "third:nitro"]])


@pytest.mark.parametrize("reason", ["disabled", "of a group"])
async def test_a_model_that_the_user_may_not_use_is_no_alternative(
    client: Client, host: Host, reason: str
):
    await User.objects.aupdate(is_superuser=False, is_staff=False)
    await store(["second"], enabled=reason != "disabled")
    if reason == "of a group":
        group = await Group.objects.acreate(name="writers")
        second = await LanguageModel.objects.aget(name="second")
        await second.groups.aadd(group)
    for name in ("second", "second:floor"):
        answer, got = await ask(client, host, [name])
        assert (answer.status, got) == (404, [])


async def test_a_variant_with_a_row_of_its_own_is_judged_by_that_row(
    client: Client, host: Host
):
    await User.objects.aupdate(is_superuser=False, is_staff=False)
    await store(["second:free"])
    await store(["second"], enabled=False)
    answer, got = await ask(client, host, ["second:free"])
    assert (answer.status, got) == (200, [["second:free"]])
    answer, got = await ask(client, host, ["second:floor"])
    assert (answer.status, got) == (404, [])


async def test_null_is_as_if_there_were_no_list(client: Client, host: Host):
    await allow_only("first")
    answer, got = await ask(client, host, None)
    assert (answer.status, got) == (200, [None])


@pytest.mark.parametrize(
    "models", ["second", {"a": 1}, [7], [None], 51 * ["a"], [301 * "a"]]
)
async def test_anything_but_a_short_list_of_names_is_refused(
    client: Client, host: Host, models: object
):
    answer, got = await ask(client, host, models)
    assert (answer.status, got) == (400, [])
    assert json.loads(answer.body)["error"]["param"].startswith("models")


NEEDED = 4096  # tokens: more than a question and its answer reserve


@sync_to_async
def limit_model(name: str, tokens: int) -> None:
    row = LanguageModel.objects.get(name=name)
    UsageLimit.objects.create(
        user=User.objects.get(), model=row, tokens=tokens, period="month"
    )
    clear_cache()


@sync_to_async
def left_of(name: str) -> int | None:
    """Tokens that the model's limit leaves."""
    left = find_limits_left(User.objects.get().pk)
    return next(each.left for each in left if name in each.model_name)


async def test_the_limit_of_an_alternative_refuses_the_request(
    client: Client, host: Host
):
    await store(["second"])
    await limit_model("second", 1)
    answer, got = await ask(client, host, ["second"])
    assert (answer.status, got) == (429, [])
    answer, got = await ask(client, host, None)
    assert answer.status == 200


@pytest.mark.parametrize(
    "answering", ["first", "first-0926", "second", "second:free", "second-0926"]
)
async def test_an_answer_counts_for_the_model_that_gave_it(
    client: Client, answering: str
):
    def reply(received: Received) -> Reply:
        status, kind, data = canned_reply("chat", received)
        return status, kind, data.replace(b"first-0926", answering.encode())

    with Host(reply) as host:
        await add_model("openai", "openai_chat", host.url, "first")
        await store(["second"])
        await limit_model("first", NEEDED)
        await limit_model("second", NEEDED)
        answer, _ = await ask(client, host, ["second"])
    assert answer.status == 200
    used = NEEDED - 11
    is_first = answering.startswith("first")
    assert await left_of("first") == (used if is_first else NEEDED)
    assert await left_of("second") == (NEEDED if is_first else used)


@pytest.mark.parametrize("stored", [True, False])
async def test_a_stored_response_needs_one_model_where_models_are_limited(
    client: Client, stored: bool
):
    with Host(lambda received: canned_reply("responses", received)) as host:
        await add_model("openai", "openai_responses", host.url, "first")
        await store(["second"])
        await limit_model("second", NEEDED)
        body = {"model": "first", "models": ["second"], "input": "Hi", "store": stored}
        answer = await client.post("/v1/responses", body)
    assert answer.status == (400 if stored else 200), answer.body
    if stored:
        assert json.loads(answer.body)["error"]["param"] == "models"


async def test_a_budget_reserves_the_dearest_of_the_models(client: Client, host: Host):
    cheap, dear = {"input": 0.1, "output": 0.1}, {"input": 10, "output": 1000}
    await LanguageModel.objects.aupdate(prices=cheap)
    await store(["second"], prices=dear)
    await AccessToken.objects.aupdate(budget=1)
    answer, got = await ask(client, host, None)
    assert (answer.status, got) == (200, [None])
    answer, got = await ask(client, host, ["second"])
    assert (answer.status, got) == (429, [])
    await LanguageModel.objects.filter(name="second").aupdate(prices=cheap)
    answer, got = await ask(client, host, ["second"])
    assert (answer.status, got) == (200, [["second"]])


def host_of(answering: str) -> Host:
    """A host that answers with this model, and does not say what an answer cost."""

    def reply(received: Received) -> Reply:
        status, kind, data = canned_reply("chat", received)
        data = data.replace(b'"service_tier": "priority"', b'"service_tier": "default"')
        return status, kind, data.replace(b"first-0926", answering.encode())

    return Host(reply)


@pytest.mark.parametrize(
    ("answering", "cents"), [("first", 11), ("second", 110), ("a new name", 110)]
)
async def test_a_budget_is_charged_what_the_answering_model_costs(
    client: Client, answering: str, cents: int
):
    with host_of(answering) as host:
        await add_model("openai", "openai_chat", host.url, "first")
        a_cent, ten_cents = 1e4, 1e5  # a token, as USD per million of them
        await LanguageModel.objects.aupdate(prices={"input": a_cent, "output": a_cent})
        await store(["second"], prices={"input": ten_cents, "output": ten_cents})
        await AccessToken.objects.aupdate(budget=10_000)
        answer, _ = await ask(client, host, ["second"])
    assert answer.status == 200, answer.body
    assert await spent_cents() == cents


@pytest.mark.parametrize(
    ("rows", "answering", "cost", "is_estimated"),
    [
        (["second"], "first-0926", 0.11, False),
        (["second"], "second:free", 1.1, False),
        (["second"], "gpt-4.1-mini-2025-04-14", 0.0000068, False),  # of the price list
        (["second"], "a new name", 1.1, True),
        ([], "first-0926", 0.11, False),
        ([], "second:free", 0.11, True),
        ([], "gpt-4.1-mini-2025-04-14", 0.0000068, False),
        ([], "a new name", 0.11, True),
    ],
)
async def test_the_row_of_a_call_has_the_price_of_the_model_that_answered(
    client: Client, rows: list[str], answering: str, cost: float, is_estimated: bool
):
    """If that has no price, the row has the price of the dearest model that may have
    answered, as an estimate."""
    with host_of(answering) as host:
        await add_model("openai", "openai_chat", host.url, "first")
        a_cent, ten_cents = 1e4, 1e5  # a token, as USD per million of them
        await LanguageModel.objects.aupdate(prices={"input": a_cent, "output": a_cent})
        await store(rows, prices={"input": ten_cents, "output": ten_cents})
        answer, _ = await ask(client, host, ["second"])
    assert answer.status == 200, answer.body
    await client.close()  # writes the rows
    row = await ModelCall.objects.aget()
    assert (float(row.cost or 0), row.is_estimated) == (cost, is_estimated)


async def spent_cents() -> int:
    """Once the call is settled, which the answer does not wait for."""
    token = await AccessToken.objects.aget()
    spent, reserved = 0, 1
    async with asyncio.timeout(60):
        while reserved:
            spent, reserved = await sync_to_async(budget.balance_of)(token)
    return round(spent / 1e7)  # of billionths of a USD


async def test_models_of_one_name_at_two_providers_are_counted_apart(client: Client):
    """The first provider fails, so that the second one chooses."""

    def choose_second(received: Received) -> Reply:
        status, kind, data = canned_reply("chat", received)
        return status, kind, data.replace(b"other-0926", b"second")

    def fail(_: Received) -> Reply:
        return 503, "application/json", b'{"error": {"message": "down"}}'

    with Host(fail) as down, Host(choose_second) as up:
        await add_model("openai", "openai_chat", down.url, "first")
        await add_model("openai_compatible", "openai_chat", up.url, "other")
        await store(["second"])
        await prepare_fallback()
        answer, _ = await ask(client, up, ["second"])
    assert answer.status == 200, answer.body
    assert await left_by_provider() == {
        "openai-openai_chat": NEEDED,
        "openai_compatible-openai_chat": NEEDED - 11,
    }


@sync_to_async
def prepare_fallback() -> None:
    """The model `other` of the second provider replaces `first` where that fails, and
    each provider has a model `second` with a limit."""
    other = LanguageModel.objects.get(name="other")
    LanguageModel.objects.get(name="first").fallbacks.add(other)
    LanguageModel.objects.create(provider=other.provider, name="second")
    for row in LanguageModel.objects.filter(name="second"):
        UsageLimit.objects.create(
            user=User.objects.get(), model=row, tokens=NEEDED, period="month"
        )
    clear_cache()


@sync_to_async
def left_by_provider() -> dict[str, int]:
    left = find_limits_left(User.objects.get().pk)
    return {each.model_name.partition("/")[0]: each.left for each in left}
