"""Pools of keys: which one a request uses, over real rows and real bytes."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx
import pytest
import respx
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.utils import timezone

from llm import router
from llm.errors import InvalidKey, LLMError, QuotaExhausted, RateLimited
from llm.generation import retries
from llm.generation.retry_policy import Policy
from llm.http import client
from llm.http.client import ProviderCall
from llm.keys import pool as key_pool
from llm.keys.audience import KeyAudience
from llm.keys.selection import (
    MAX_REST,
    QUOTA_REST,
    Avoid,
    Disable,
    Rest,
    Verdict,
    verdict_of,
)
from llm.models import ApiKey, LanguageModel, Provider
from llm.wire.deltas import TextDelta
from llm.wire.items import is_issuer, user_message
from llm.wire.request import Request
from tests.llm.hosts import text_stream

pytestmark = pytest.mark.django_db(transaction=True)

MODEL = "vendor/model-x"
ANSWERS = text_stream("Hello")


def doubtful(error: LLMError) -> LLMError:
    error.is_certain = False
    return error


class Time:
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = timezone.now().timestamp()
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class Host:
    """Answers by the key of the request; records keys and times."""

    def __init__(self, web: respx.MockRouter, time: Time) -> None:
        self.time = time
        self.requests: list[tuple[str, float]] = []
        self.bodies: list[Any] = []
        self.refusals: dict[str, Callable[[str], httpx.Response | None]] = {}
        web.post(url__regex=r"^https://pool\.test/").mock(side_effect=self._answer)

    @property
    def keys(self) -> list[str]:
        return [key for key, _ in self.requests]

    def refuse(self, key: str, status: int, *, model: str = "", **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}

        def answer(request: str) -> httpx.Response | None:
            if model not in ("", request):
                return None
            body = {"error": {"message": f"no, said to {key}"}}
            return httpx.Response(status, json=body, headers=named)

        self.refusals[key] = answer

    def _answer(self, request: httpx.Request) -> httpx.Response:
        key = request.headers["authorization"].removeprefix("Bearer ")
        body = json.loads(request.content)
        self.requests.append((key, self.time.now))
        self.bodies.append(body)
        refuse = self.refusals.get(key)
        if refuse and (refused := refuse(body["model"])):
            return refused
        head = {"content-type": "text/event-stream"}
        return httpx.Response(200, content=ANSWERS, headers=head)


@pytest.fixture(autouse=True)
async def _closed_client() -> AsyncIterator[None]:
    yield
    await client.aclose()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def host(time: Time) -> Iterator[Host]:
    with respx.mock(using="parley", assert_all_called=False) as web:
        yield Host(web, time)


@pytest.fixture
def provider(db: None) -> Provider:
    provider = Provider.objects.create(
        name="Pool", kind="openai_compatible", base_url="https://pool.test/v1"
    )
    provider.models.create(name=MODEL)
    provider.models.create(name="other-model")
    return provider


def with_keys(provider: Provider, *names: str, **fields: Any) -> None:
    for name in names:
        provider.keys.create(label=name, secret=f"sk-{name}", **fields)


async def route(model: str = MODEL) -> Any:
    find = LanguageModel.objects.select_related("provider").aget
    return await sync_to_async(router.route_of)(await find(name=model))


async def call_model(
    time: Time, *, model: str = MODEL, call: ProviderCall | None = None, **options: Any
) -> tuple[str, LLMError | None]:
    """The text of the answer, and the error that ended it."""
    routes = options.pop("routes", None) or [await route(model)]
    items = options.pop("items", [user_message("Hi")])
    request = Request(model=model, items=items)
    call = call or ProviderCall()
    stream = retries.stream(routes, request, call, wait=time.wait, now=time, **options)
    text = ""
    try:
        async with aclosing(stream) as batches:
            async for batch in batches:
                text += "".join(d.text for d in batch if isinstance(d, TextDelta))
    except LLMError as exc:
        return text, exc
    return text, None


async def key(label: str) -> ApiKey:
    return await ApiKey.objects.aget(label=label)


# A refused key


async def test_a_revoked_key_among_two_fails_no_request(provider, host, time):
    await sync_to_async(with_keys)(provider, "good", "revoked")
    host.refuse("sk-revoked", 401)
    answers = [await call_model(time) for _ in range(60)]
    assert answers == [("Hello", None)] * 60
    assert host.keys.count("sk-revoked") == 1
    assert time.waits == []
    row = await key("revoked")
    assert row.state == ApiKey.State.DISABLED
    assert row.state_reason.startswith("E_LLM_INVALID_KEY: ")


async def test_a_permanently_refused_key_is_disabled_with_an_alert(
    provider, host, time, caplog
):
    await sync_to_async(with_keys)(provider, "one", "two")
    host.refuse("sk-one", 401)
    host.refuse("sk-two", 401)
    call = ProviderCall()
    with caplog.at_level(logging.ERROR):
        _, error = await call_model(time, call=call)
    assert isinstance(error, InvalidKey)
    assert sorted(host.keys) == ["sk-one", "sk-two"]
    assert [c.attempt for c in [*call.earlier, call]] == [1, 2]
    errors = [each for each in caplog.records if each.levelno >= logging.ERROR]
    alerts = [record.getMessage() for record in errors]
    assert len(alerts) == 2
    assert all("of the provider 'Pool' was disabled" in alert for alert in alerts)
    assert "sk-" not in caplog.text
    # The next one is refused by ourselves.
    _, error = await call_model(time)
    assert isinstance(error, InvalidKey)
    assert "no active key" in str(error)
    assert len(host.requests) == 2


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (InvalidKey(upstream_status=401), Disable()),
        (InvalidKey(upstream_status=400), Disable()),
        (doubtful(InvalidKey(upstream_status=400)), Rest(QUOTA_REST)),
        (QuotaExhausted(upstream_status=402), Rest(QUOTA_REST)),
        (doubtful(QuotaExhausted(upstream_status=402)), Avoid()),
    ],
)
def test_only_a_certain_refusal_of_the_key_disables_it(
    error: LLMError, verdict: Verdict
):
    assert verdict_of(error) == verdict


@pytest.mark.parametrize("status", [401, 402, 403])
async def test_a_refusal_that_a_user_asks_the_demo_for_takes_its_key_from_nobody(
    host, time, settings, status
):
    settings.SELF_URL = "https://pool.test"
    demo = await Provider.objects.acreate(name="D", kind="demo", codec="openai_chat")
    await demo.models.acreate(name=MODEL)
    await sync_to_async(with_keys)(demo, "only")
    host.refuse("sk-only", status)
    _, error = await call_model(time)
    assert isinstance(error, LLMError)
    host.refusals.clear()
    assert await call_model(time) == ("Hello", None)
    assert (await key("only")).state == ApiKey.State.ACTIVE


async def test_a_key_may_be_refused_for_one_model(provider, host, time):
    await sync_to_async(with_keys)(provider, "one", "two")
    host.refuse("sk-one", 403, model=MODEL)
    for _ in range(20):
        assert await call_model(time) == ("Hello", None)
    assert host.keys.count("sk-one") <= 1
    for _ in range(20):
        assert await call_model(time, model="other-model") == ("Hello", None)
    assert host.keys[-20:].count("sk-one") > 2
    time.now += 24 * 3600
    await ApiKey.objects.filter(label="two").aupdate(state="disabled")
    host.refusals.clear()
    assert await call_model(time) == (
        "Hello",
        None,
    )  # staff may have changed it meanwhile


async def test_one_attempt_means_no_other_key_either(provider, host, time):
    await sync_to_async(with_keys)(provider, "one", "two")
    host.refuse("sk-one", 401)
    host.refuse("sk-two", 401)
    _, error = await call_model(time, policy=Policy(attempts=1))
    assert isinstance(error, InvalidKey)
    assert len(host.requests) == 1


# A key that rests


async def test_a_rate_limited_key_rests_as_long_as_the_provider_says(
    provider, host, time
):
    await sync_to_async(with_keys)(provider, "limited", "other")
    host.refuse("sk-limited", 429, retry_after="7")
    while "sk-limited" not in host.keys:
        assert await call_model(time) == ("Hello", None)
    rested = time.now + 7
    row = await key("limited")
    assert row.state == ApiKey.State.RESTING
    assert row.rest_until.timestamp() == pytest.approx(rested)
    while time.now < rested - 1:
        assert await call_model(time) == ("Hello", None)
        time.now += 0.5
    assert host.keys.count("sk-limited") == 1
    time.now = rested + 0.1
    host.refusals.clear()
    for _ in range(30):
        assert await call_model(time) == ("Hello", None)
    assert host.keys.count("sk-limited") > 1


async def test_while_all_keys_rest_a_request_waits_a_little(provider, host, time):
    await sync_to_async(with_keys)(provider, "one")
    host.refuse("sk-one", 429, retry_after="1")
    _, error = await call_model(time, policy=Policy(attempts=1))
    assert isinstance(error, RateLimited)
    host.refusals.clear()
    first = time.now
    assert await call_model(time) == ("Hello", None)
    assert 1 <= time.now - first <= 1.2


async def test_longer_rests_are_reported_to_the_caller(provider, host, time):
    await sync_to_async(with_keys)(provider, "one", "two")
    host.refuse("sk-one", 429, retry_after="7")
    host.refuse("sk-two", 429, retry_after="30")
    call = ProviderCall()
    _, error = await call_model(time, call=call)
    assert isinstance(error, RateLimited)
    assert error.retry_after == pytest.approx(7)
    assert sorted(host.keys) == ["sk-one", "sk-two"]
    time.now += 3
    call = ProviderCall()
    _, error = await call_model(time, call=call)
    assert (error.status, error.code) == (429, "E_LLM_RATE_LIMIT")
    assert error.retry_after == pytest.approx(4)
    assert len(host.requests) == 2
    assert (call.started_at, time.waits) == (0, [])


async def test_the_wait_for_keys_can_be_set(provider, host, time, settings):
    await sync_to_async(with_keys)(provider, "one")
    settings.LLM_KEY_WAIT = 10
    host.refuse("sk-one", 429, retry_after="7")
    await call_model(time, policy=Policy(attempts=1))
    host.refusals.clear()
    assert await call_model(time) == ("Hello", None)
    assert sum(time.waits) >= 7


async def test_no_key_rests_longer_than_a_day(provider, host, time):
    await sync_to_async(with_keys)(provider, "one")
    host.refuse("sk-one", 429, retry_after="9999999")
    await call_model(time)
    row = await key("one")
    assert row.rest_until.timestamp() <= time.now + MAX_REST + 1


async def test_a_provider_without_retry_after_is_tried_again(provider, host, time):
    """One key, and one request in twenty refused: resting it would fail them all."""
    await sync_to_async(with_keys)(provider, "one")
    host.refuse("sk-one", 429)
    _, error = await call_model(time)
    assert isinstance(error, RateLimited)
    assert len(host.requests) == 3
    host.refusals.clear()
    assert await call_model(time) == ("Hello", None)
    assert (await key("one")).state == ApiKey.State.ACTIVE


async def test_while_all_keys_rest_the_fallback_is_used(provider, host, time):
    await sync_to_async(with_keys)(provider, "one")
    other = await Provider.objects.acreate(
        name="Other", kind="openai_compatible", base_url="https://pool.test/v1"
    )
    await other.keys.acreate(secret="sk-fallback")
    await other.models.acreate(name="fallback")
    host.refuse("sk-one", 429, retry_after="60")
    routes = [await route(), await route("fallback")]
    for _ in range(3):
        assert await call_model(time, routes=routes) == ("Hello", None)
    assert host.keys == ["sk-one", *["sk-fallback"] * 3]


async def test_an_outage_of_the_provider_rests_no_key(provider, host, time):
    await sync_to_async(with_keys)(provider, "one")
    host.refuse("sk-one", 503)
    await call_model(time)
    assert len(host.requests) == 3
    row = await key("one")
    assert (row.state, row.rest_until) == (ApiKey.State.ACTIVE, None)


# Five keys at once


@pytest.mark.slow
async def test_five_keys_of_which_three_are_refused(provider, host, time):
    """50 requests a second for 20 seconds: no client sees an error, and no resting key
    is used."""
    await sync_to_async(with_keys)(provider, "limited", "unpaid", "half", "a", "b")
    host.refuse("sk-limited", 429, retry_after="7")
    host.refuse("sk-unpaid", 402)
    host.refuse("sk-half", 403, model=MODEL)
    routes = [await route()]
    begun = time.now
    for number in range(1000):
        time.now = begun + number / 50
        assert await call_model(time, routes=routes) == ("Hello", None)
    expected_url = {
        name: [at for key, at in host.requests if key == f"sk-{name}"]
        for name in ("limited", "unpaid", "half", "a", "b")
    }
    limited = expected_url["limited"]
    assert all(later - at >= 7 for at, later in pairwise(limited))
    assert 2 <= len(limited) <= 3
    assert (len(expected_url["unpaid"]), len(expected_url["half"])) == (1, 1)
    assert 350 < len(expected_url["a"]) < 650
    assert time.waits == []


# Which key


async def test_each_call_draws_a_key_by_weight(provider, host, time):
    await sync_to_async(with_keys)(provider, "heavy", weight=3)
    await sync_to_async(with_keys)(provider, "light", weight=1)
    await sync_to_async(with_keys)(provider, "none", weight=0)
    routes = [await route()]
    for _ in range(400):
        await call_model(time, routes=routes)
    drawn = Counter(host.keys)
    assert drawn.keys() == {"sk-heavy", "sk-light"}
    assert 240 < drawn["sk-heavy"] < 360


async def test_a_conversation_reuses_its_key_while_possible(provider, host, time):
    await sync_to_async(with_keys)(provider, "a", "b", "c")
    for number in range(30):
        for _ in range(3):
            await call_model(time, affinity=f"conversation {number}")
        assert len({*host.keys[-3:]}) == 1
    assert len({*host.keys}) == 3
    usual = host.keys[-1]
    host.refuse(usual, 429, retry_after="60")
    await call_model(time, affinity="conversation 29")
    await call_model(time, affinity="conversation 29")
    assert host.keys[-1] == host.keys[-2] != usual
    host.refusals.clear()
    time.now += 61
    await call_model(time, affinity="conversation 29")
    assert host.keys[-1] == usual


async def test_the_key_that_made_a_proof_is_preferred(provider, host, time):
    await sync_to_async(with_keys)(provider, "a", "b", "c")
    found = await route()
    made = await key("b")
    issuer = {
        **found.endpoint.issuer(MODEL),
        "route": f"{provider.pk}:{made.pk}",
    }
    proof = {"issuer": issuer, "raw": {"reasoning_content": "because"}}
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "because"}],
        "provider_data": proof,
    }
    items = [user_message("Hi"), thought, user_message("And?")]
    for number in range(10):
        await call_model(time, items=items, affinity=f"conversation {number}")
    assert {*host.keys} == {"sk-b"}
    host.refuse("sk-b", 429, retry_after="60")
    assert await call_model(time, items=items) == ("Hello", None)  # without the proof


def test_a_proof_of_any_key_goes_to_each_of_its_account():
    own = {"provider": "p", "model": "m", "route": "1:7"}
    assert is_issuer(own, {**own, "route": "1:*"})
    assert not is_issuer(own, {**own, "route": "2:*"})
    assert not is_issuer(own, {**own, "route": "1:*:anthropic"})
    assert not is_issuer(own, {**own, "route": "1:*", "model": "other"})
    assert is_issuer({**own, "route": "1:7:x"}, {**own, "route": "1:*:x"})


# Two threads


class InRead(datetime):
    """A row's time, and what the event loop does while another thread reads it."""

    meanwhile: Callable[[], None]

    def timestamp(self) -> float:
        self.meanwhile()
        return super().timestamp()


def resting(
    provider: Provider, time: Time, seconds: float
) -> tuple[key_pool.KeyPool, list[ApiKey], InRead]:
    """A pool of one key that rests, and a row of it that is read anew."""
    until = datetime.fromtimestamp(time.now + seconds, UTC)
    state = {"state": ApiKey.State.RESTING, "rest_until": until}
    with_keys(provider, "one", **state)
    pool = key_pool.KeyPool(provider)
    pool.fill(provider, [*provider.keys.all()])
    row = provider.keys.get()
    row.rest_until = read = InRead.fromtimestamp(time.now + seconds, UTC)
    return pool, [row], read


def test_a_resting_key_is_not_chosen_while_its_row_is_read(provider, time):
    pool, rows, read = resting(provider, time, 60.0)
    chosen: list[ApiKey | None] = []
    read.meanwhile = lambda: chosen.append(pool.choose(MODEL, time.now))
    pool.fill(provider, rows)
    assert chosen
    assert {*chosen} == {None}


@pytest.mark.parametrize("refused", ["limited", "for good", "for the model"])
def test_a_rest_learned_during_the_read_of_the_row_remains(
    provider, time, refused: str
):
    pool, rows, read = resting(provider, time, 1.0)
    found = pool.get(rows[0].pk)
    assert found is not None
    now, until = time.now + 5.0, time.now + 60.0  # the row was written before
    changes: dict[str, Callable[[], None]] = {
        "limited": lambda: found.rest(until, "E_LLM_RATE_LIMITED", now),
        "for good": lambda: found.disable("E_LLM_INVALID_KEY", now),
        "for the model": lambda: found.rest_for_model(MODEL, until, now),
    }
    read.meanwhile = changes[refused]
    pool.fill(provider, rows)
    assert pool.choose(MODEL, time.now + 30.0) is None


# What other processes and staff do


async def test_rests_learned_by_another_process_are_read_from_the_rows(
    provider, host, time
):
    await sync_to_async(with_keys)(provider, "one", "two")
    routes = [await route()]
    now = timezone.now()
    until = now + timedelta(minutes=1)
    await ApiKey.objects.filter(label="one").aupdate(
        state="resting", rest_until=until, state_changed_at=now
    )
    pool = key_pool.pool_of(routes[0])
    assert pool is not None
    pool.read_at -= key_pool.MAX_AGE  # as if so long ago
    for _ in range(20):
        await call_model(time, routes=routes)
    assert {*host.keys} == {"sk-two"}


async def test_staff_enable_a_key_that_was_disabled(provider, host, time):
    await sync_to_async(with_keys)(provider, "one")
    host.refuse("sk-one", 401)
    await call_model(time)
    host.refusals.clear()
    time.now += 1
    row = await key("one")
    await sync_to_async(row.enable)()
    assert await call_model(time) == ("Hello", None)


async def test_a_newly_entered_key_is_not_affected_by_the_old_ones_refusal(
    provider, host, time
):
    await sync_to_async(with_keys)(provider, "one")
    routes = [await route()]  # with the old one
    row = await key("one")
    row.secret = "sk-entered-later"
    await row.asave()
    host.refuse("sk-one", 401)
    await call_model(time, routes=routes)
    row = await key("one")
    assert (row.state, row.state_reason) == (ApiKey.State.ACTIVE, "")
    assert await call_model(time) == ("Hello", None)
    assert host.keys == ["sk-one", "sk-entered-later"]


@pytest.mark.parametrize("change", ["deleted", "weight 0"])
@pytest.mark.parametrize("pools", ["refilled by another call", "dropped"])
async def test_a_key_that_was_taken_away_is_not_sent(
    provider, host, time, change, pools, monkeypatch
):
    await sync_to_async(with_keys)(provider, "one")
    routes = [await route()]
    if change == "deleted":
        await provider.keys.all().adelete()
    else:
        await provider.keys.aupdate(weight=0)
    if pools == "dropped":
        monkeypatch.setattr(key_pool, "MAX_POOLS", 0)
        other = await Provider.objects.acreate(name="Other", kind="openai_compatible")
        key_pool.fill(other, [])
    else:
        await route()
    _, error = await call_model(time, routes=routes)
    assert isinstance(error, InvalidKey)
    assert host.keys == []


async def test_after_its_pool_was_dropped_a_call_uses_the_stored_keys(
    provider, host, time, monkeypatch
):
    await sync_to_async(with_keys)(provider, "one")
    routes = [await route()]
    await provider.keys.all().adelete()
    await sync_to_async(with_keys)(provider, "two")
    monkeypatch.setattr(key_pool, "MAX_POOLS", 0)
    # Of a number that no other test's provider has had: a new pool drops the others.
    key_pool.fill(Provider(pk=10**9, name="Other", kind="openai_compatible"), [])
    assert await call_model(time, routes=routes) == ("Hello", None)
    assert host.keys == ["sk-two"]


async def unusable(label: str, why: str) -> None:
    """Make a key one that is not sent."""
    row = await ApiKey.objects.select_related("provider").aget(label=label)
    if why == "empty":
        await ApiKey.objects.filter(pk=row.pk).aupdate(secret="")
    else:
        row.enter(f"sk-{label}", "https://before.test:443")
        await row.asave()


NOT_SENT = pytest.mark.parametrize("why", ["empty", "entered for a different address"])


@NOT_SENT
async def test_a_key_that_is_not_sent_leaves_the_others(provider, host, time, why):
    await sync_to_async(with_keys)(provider, "one", "two")
    await unusable("one", why)
    for _ in range(10):
        assert await call_model(time) == ("Hello", None)
    assert {*host.keys} == {"sk-two"}


@NOT_SENT
async def test_beside_a_key_that_is_not_sent_a_resting_one_is_waited_for(
    provider, host, time, why
):
    await sync_to_async(with_keys)(provider, "one", "two")
    await unusable("one", why)
    host.refuse("sk-two", 429, Retry_After="1")
    await call_model(time)
    host.refusals.clear()
    time.waits.clear()
    assert await call_model(time) == ("Hello", None)
    assert len(time.waits) <= 1  # the attempt before may have waited for it
    host.refuse("sk-two", 429, Retry_After="60")
    await call_model(time)
    time.waits.clear()
    _, error = await call_model(time)
    assert isinstance(error, RateLimited)
    assert error.retry_after == pytest.approx(60.0, abs=1.0)
    assert time.waits == []
    assert {*host.keys} == {"sk-two"}


@NOT_SENT
async def test_beside_a_key_that_is_not_sent_a_refused_one_is_named_as_such(
    provider, host, time, why
):
    await sync_to_async(with_keys)(provider, "one", "two")
    await unusable("one", why)
    host.refuse("sk-two", 401)
    await call_model(time)
    _, error = await call_model(time)
    assert isinstance(error, InvalidKey)
    assert "enter" in str(error)
    assert "refused the model" not in str(error)
    assert host.keys == ["sk-two"]


@pytest.mark.parametrize(
    "case", ["none", "disabled", "limited", "no quota", "model", "not sent"]
)
def test_a_refusal_of_an_own_key_names_what_its_owner_can_do(provider, time, case):
    owner = User.objects.create(username="ada")
    row = ApiKey(provider=provider, owner=owner, label="own", secret="sk-own")
    row.save()
    rows = [] if case == "none" else [row]
    pool = key_pool.KeyPool(provider, KeyAudience(user_id=owner.pk))
    pool.fill(provider, rows)
    if found := pool.get(row.pk):
        until = time.now + 60
        changes: dict[str, Callable[[], None]] = {
            "disabled": lambda: found.disable("E_LLM_INVALID_KEY", time.now),
            "limited": lambda: found.rest(until, "E_LLM_RATE_LIMIT", time.now),
            "no quota": lambda: found.rest(until, "E_LLM_QUOTA", time.now),
            "model": lambda: found.rest_for_model(MODEL, until, time.now),
            "not sent": lambda: None,
        }
        changes[case]()
    excluded = [row.pk] if case == "not sent" else []
    text = str(pool.refusal(MODEL, time.now, excluded=excluded))
    assert "staff" not in text
    assert "own" in text
    assert "'Pool'" in text


@pytest.mark.parametrize(
    ("status", "named"),
    [(401, "refused your own key"), (402, "Your own key has no credit")],
)
async def test_an_own_key_that_fails_names_its_owner_and_not_the_staff(
    provider, host, time, status: int, named: str
):
    owner = await sync_to_async(User.objects.create)(username="ada")
    await sync_to_async(with_keys)(provider, "shared")
    key_of_owner = ApiKey(provider=provider, owner=owner, label="own", secret="sk-own")
    await key_of_owner.asave()
    await Provider.objects.filter(pk=provider.pk).aupdate(accepts_own_keys=True)
    host.refuse("sk-own", status)
    model = await LanguageModel.objects.select_related("provider").aget(name=MODEL)
    own = await sync_to_async(router.route_of)(model, user=owner)
    _, error = await call_model(time, routes=[own])
    assert host.keys == ["sk-own"]
    assert named in str(error)
    assert "staff" not in str(error)
    host.refuse("sk-shared", status)
    _, error = await call_model(time)
    assert "staff" in str(error)
    assert "own" not in str(error)
