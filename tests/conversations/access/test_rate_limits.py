"""Requests and tokens a minute: in memory, in Redis or PostgreSQL, and when that is
unavailable."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction
from hypothesis import given
from hypothesis import strategies as st

from conversations.access.rate_buckets import buckets as bucket_limits
from conversations.access.rate_buckets import postgres_buckets, redis_buckets
from conversations.access.rate_buckets.buckets import (
    MINUTE,
    Buckets,
    Charge,
    SharedBuckets,
    Verdict,
)
from conversations.access.rate_buckets.postgres_buckets import PostgresBuckets
from conversations.access.rate_buckets.redis_buckets import RedisBuckets
from tests.scaled import RedisProcess


def requests(limit: int, amount: float = 1, **fields: Any) -> list[Charge]:
    return [Charge("requests", limit, amount, **fields)]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Iterator[RedisBuckets]:
    # A loaded machine is slow; Redis is not away.
    monkeypatch.setattr(redis_buckets, "REDIS_TIMEOUT", 60.0)
    buckets = RedisBuckets(redis_url)
    yield buckets
    asyncio.run(buckets.aclose())


@pytest.fixture
def owner() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def in_postgresql(transactional_db: None) -> Iterator[PostgresBuckets]:
    buckets = PostgresBuckets()
    yield buckets
    asyncio.run(buckets.aclose())


needs_postgresql = pytest.mark.skipif(
    not settings.IS_SCALED, reason="the database is SQLite"
)


@pytest.fixture(
    params=[
        "memory",
        pytest.param("shared", marks=pytest.mark.server, id="redis"),
        pytest.param("in_postgresql", marks=needs_postgresql, id="postgresql"),
    ]
)
def take(request: Any, owner: str) -> Callable[[list[Charge]], Verdict]:
    """Of one token, at the same moment."""
    if request.param == "memory":
        buckets = Buckets()
        return lambda wanted: buckets.take(owner, wanted, 0.0)
    shared: SharedBuckets = request.getfixturevalue(request.param)
    return lambda wanted: shared.take(owner, wanted)


def test_a_minutes_worth_may_be_taken_at_once_and_no_more(take: Any):
    granted = [take(requests(3)) for _ in range(4)]
    assert [verdict.is_allowed for verdict in granted] == [True, True, True, False]
    assert [verdict.buckets[0].remaining for verdict in granted] == [2, 1, 0, 0]
    assert 0 < granted[-1].retry_after <= MINUTE / 3
    assert 0 < granted[0].buckets[0].full_in <= MINUTE / 3


def test_of_two_limits_both_are_taken_or_none(take: Any):
    both = [Charge("requests", 10, 1), Charge("tokens", 100, 60)]
    assert take(both).is_allowed
    refused = take(both)
    assert not refused.is_allowed
    assert [left.remaining for left in refused.buckets] == [9, 40]


def test_peeking_at_a_limit_takes_nothing(take: Any):
    for _ in range(3):
        assert take(requests(1, is_taken=False)).is_allowed
    assert take(requests(1)).is_allowed
    assert not take(requests(1, is_taken=False)).is_allowed


def test_more_than_a_minutes_worth_waits_for_a_full_bucket_and_longer_after(take: Any):
    assert take(requests(10, 15)).is_allowed
    refused = take(requests(10, 1))
    assert not refused.is_allowed
    assert refused.retry_after == pytest.approx(36, abs=2)  # six of ten a minute


def test_past_usage_is_charged_even_beyond_the_limit(take: Any):
    take(requests(10, 9))
    assert take(requests(10, 5, is_unconditional=True)).is_allowed
    assert not take(requests(10, 1)).is_allowed
    assert take(requests(10, -6, is_unconditional=True)).buckets[0].remaining in (2, 3)


def test_giving_back_does_not_overflow(take: Any):
    assert take(requests(10, -50, is_unconditional=True)).buckets[0].remaining == 10


def test_a_lower_limit_counts_at_once(take: Any):
    take(requests(100))
    assert take(requests(2)).buckets[0].remaining == 1


Steps = st.lists(
    st.tuples(st.floats(0, 30), st.integers(1, 8), st.booleans()), max_size=40
)


@given(limit=st.integers(1, 20), steps=Steps)
def test_in_no_minute_more_is_taken_than_two_minutes_worth(limit: int, steps: Any):
    """A bucket that is full and refills: the bound of every token bucket."""
    buckets, now, taken = Buckets(), 0.0, []
    for pause, amount, _ in steps:
        now += pause
        amount = min(amount, limit)
        if buckets.take("x", requests(limit, amount), now).is_allowed:
            taken.append((now, amount))
    for start, _ in taken:
        within = sum(n for at, n in taken if start <= at < start + MINUTE)
        assert within <= 2 * limit


@given(limit=st.integers(1, 1000))
def test_waiting_for_the_announced_time_is_enough(limit: int):
    buckets, now = Buckets(), 0.0
    while (verdict := buckets.take("x", requests(limit), now)).is_allowed:
        pass
    assert buckets.take("x", requests(limit), now + verdict.retry_after).is_allowed


def test_threads_take_no_more_than_there_is():
    buckets = Buckets()
    with ThreadPoolExecutor(20) as threads:
        granted = threads.map(
            lambda _: buckets.take("x", requests(50), 0.0).is_allowed, range(200)
        )
    assert sum(granted) == 50


def test_buckets_that_are_full_again_are_forgotten(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bucket_limits, "MAX_BUCKETS", 10)
    buckets = Buckets()
    for number in range(30):
        buckets.take(str(number), requests(1), float(number * 60))
    assert len(buckets.levels) <= 11


async def test_all_processes_share_what_is_in_redis(
    shared: RedisBuckets, owner: str, redis_url: str
):
    other = RedisBuckets(redis_url)
    granted = await asyncio.gather(
        *(each.atake(owner, requests(20)) for each in [shared, other] * 20)
    )
    assert sum(verdict.is_allowed for verdict in granted) == 20
    assert not other.take(owner, requests(20)).is_allowed
    for each in (shared, other):
        await each.aclose()


@pytest.mark.usefixtures("redis_url")
async def test_an_unreachable_redis_blocks_no_request(
    tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bucket_limits, "RETRY_PAUSE", 0.0)
    server = RedisProcess(tmp_path).start()
    buckets = RedisBuckets(server.url)
    try:
        assert (await buckets.atake("x", requests(2))).is_allowed
        server.kill()
        granted = [await buckets.atake("x", requests(2)) for _ in range(3)]
        assert [verdict.is_allowed for verdict in granted] == [True, True, False]
        assert not buckets.take("x", requests(2)).is_allowed  # by its own count
        assert caplog.text.count("Redis is unavailable") >= 1
        server.start()
        assert (await buckets.atake("x", requests(2))).is_allowed
    finally:
        await buckets.aclose()
        server.kill()


@needs_postgresql
async def test_all_processes_share_what_is_in_postgresql(
    in_postgresql: PostgresBuckets, owner: str
):
    other = PostgresBuckets()
    granted = await asyncio.gather(
        *(each.atake(owner, requests(20)) for each in [in_postgresql, other] * 20)
    )
    assert sum(verdict.is_allowed for verdict in granted) == 20
    refused = await asyncio.to_thread(other.take, owner, requests(20))
    assert not refused.is_allowed
    for each in (in_postgresql, other):
        await each.aclose()


@needs_postgresql
def test_no_charge_is_lost_between_threads_and_their_buckets(
    in_postgresql: PostgresBuckets, owner: str
):
    """The order in which charges name their buckets differs, and nothing waits for
    ever."""
    other = PostgresBuckets()
    both = [Charge("requests", 50, 1), Charge("tokens", 50, 1)]

    def take(number: int) -> bool:
        buckets = (in_postgresql, other)[number % 2]
        charges = both if number % 3 else both[::-1]
        return buckets.take(owner, charges).is_allowed

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(take, range(120))) == 50
    asyncio.run(other.aclose())


@needs_postgresql
def test_a_charge_outlasts_the_transaction_that_was_rolled_back(
    in_postgresql: PostgresBuckets, owner: str
):
    with suppress(ZeroDivisionError), transaction.atomic():
        assert in_postgresql.take(owner, requests(1)).is_allowed
        raise ZeroDivisionError
    assert not in_postgresql.take(owner, requests(1)).is_allowed


@needs_postgresql
async def test_an_unreachable_postgresql_blocks_no_request(
    in_postgresql: PostgresBuckets, caplog: Any, monkeypatch: pytest.MonkeyPatch
):
    assert (await in_postgresql.atake("x", requests(2))).is_allowed
    await in_postgresql.aclose()
    nowhere = {"host": "127.0.0.1", "port": "1"}
    monkeypatch.setattr(
        postgres_buckets, "short_parameters", lambda name, **changes: changes | nowhere
    )
    granted = [await in_postgresql.atake("x", requests(2)) for _ in range(3)]
    assert [verdict.is_allowed for verdict in granted] == [True, True, False]
    assert caplog.text.count("PostgreSQL is unavailable") >= 1
