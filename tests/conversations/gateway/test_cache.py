from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from conversations.engine.database.executor import Database
from conversations.gateway.lookup_cache import Cache, clear_on_change

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    database = Database()
    yield database
    await database.close()


class LookUp:
    """Counts, and may be held up."""

    def __init__(self) -> None:
        self.times = 0
        self.begun, self.go = threading.Event(), threading.Event()
        self.go.set()

    def __call__(self, key: str) -> str:
        self.times += 1
        self.begun.set()
        assert self.go.wait(60)
        if key == "bad":
            raise LookupError(key)
        return f"{key} {self.times}"


async def test_a_cached_value_is_not_fetched_again(database: Database):
    look_up = LookUp()
    cache = Cache(look_up)
    assert [await cache.get("a", database) for _ in range(3)] == ["a 1"] * 3
    assert await cache.get("b", database) == "b 2"


async def test_an_expired_value_is_fetched_again(database: Database):
    cache = Cache(LookUp(), seconds=0)
    assert await cache.get("a", database) == "a 1"
    assert await cache.get("a", database) == "a 2"


async def test_concurrent_lookups_wait_for_one_fetch(database: Database):
    look_up = LookUp()
    cache = Cache(look_up)
    answers = await asyncio.gather(*(cache.get("a", database) for _ in range(20)))
    assert set(answers) == {"a 1"}


async def test_other_waiters_get_the_value_if_the_first_is_cancelled(
    database: Database,
):
    look_up = LookUp()
    look_up.go.clear()
    cache = Cache(look_up)
    first = asyncio.ensure_future(cache.get("a", database))
    second = asyncio.ensure_future(cache.get("a", database))
    await asyncio.to_thread(look_up.begun.wait, 60)
    first.cancel()
    look_up.go.set()
    assert await second == "a 1"


async def test_an_error_is_raised_and_not_cached(database: Database):
    look_up = LookUp()
    cache = Cache(look_up)
    for _ in range(2):
        with pytest.raises(LookupError):
            await cache.get("bad", database)
    assert look_up.times == 2


async def test_a_lookup_begun_before_a_change_is_not_cached(database: Database):
    look_up = LookUp()
    look_up.go.clear()
    cache = Cache(look_up)
    changed = clear_on_change(cache)
    asking = asyncio.ensure_future(cache.get("a", database))
    await asyncio.to_thread(look_up.begun.wait, 60)
    await asyncio.to_thread(changed, sender=None)
    look_up.go.set()
    assert await asking == "a 1"  # requested before the change
    assert await cache.get("a", database) == "a 2"


async def test_it_does_not_grow_without_bounds(database: Database):
    cache = Cache(LookUp(), size=2)
    for key in "abcd":
        await cache.get(key, database)
    assert await cache.get("d", database) == "d 4"
    assert await cache.get("a", database) == "a 5"
