from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.engine.database.executor import Database, DatabaseClosed
from conversations.gateway import write_behind
from conversations.gateway.write_behind import WriteBehindQueue
from llm.models import ModelCall

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
async def records() -> AsyncIterator[WriteBehindQueue]:
    database = Database()
    yield WriteBehindQueue(database)
    await database.close()


async def test_closing_writes_what_was_not_written_yet(records: WriteBehindQueue):
    for name in "abc":
        records.add(lambda name=name: User.objects.create(username=name))
    await records.close()
    assert {user.username async for user in User.objects.all()} == set("abc")


async def test_one_that_cannot_be_written_takes_no_other_with_it(
    records: WriteBehindQueue, caplog: pytest.LogCaptureFixture
):
    for name in ("a", "a", "b"):
        records.add(lambda name=name: User.objects.create(username=name))
    await records.close()
    assert {user.username async for user in User.objects.all()} == {"a", "b"}
    assert "a record of the gateway could not be stored" in caplog.text


async def test_rows_of_calls_are_written_in_their_order(records: WriteBehindQueue):
    for name in "abc":
        records.add_call(lambda name=name: ModelCall(model_name=name))
    await records.close()
    names = [row.model_name async for row in ModelCall.objects.order_by("id")]
    assert names == ["a", "b", "c"]


async def test_a_call_that_cannot_be_written_takes_no_other_with_it(
    records: WriteBehindQueue, caplog: pytest.LogCaptureFixture
):
    def broken() -> ModelCall:
        raise ValueError("no row")

    records.add_call(lambda: ModelCall(model_name="a"))
    records.add_call(broken)
    records.add_call(lambda: ModelCall(model_name="b", status=None))
    records.add_call(lambda: ModelCall(model_name="c"))
    await records.close()
    names = {row.model_name async for row in ModelCall.objects.all()}
    assert names == {"a", "c"}
    assert "a record of the gateway could not be stored" in caplog.text


class Outage:
    """A write that fails as often as the database is unavailable."""

    def __init__(self, times: int) -> None:
        self.times = times

    def __call__(self) -> None:
        self.times -= 1
        if self.times >= 0:
            raise DatabaseClosed("the connection is lost")


async def wait_for_rows(count: int) -> None:
    async with asyncio.timeout(60):
        while await ModelCall.objects.acount() < count:
            pass


async def test_an_outage_delays_writes_and_loses_none(
    records: WriteBehindQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(write_behind, "PAUSE", 0.01)
    outage, written = Outage(3), list[str]()
    records.add(lambda: written.append("before"))
    records.add(outage)
    records.add_call(lambda: ModelCall(model_name="a"))
    async with asyncio.timeout(60):
        while outage.times > 1:
            await asyncio.sleep(0)
    records.add(lambda: written.append("after"))
    records.add_call(lambda: ModelCall(model_name="b"))
    await wait_for_rows(2)
    assert outage.times < 0
    assert (written[0], written[-1], written.count("after")) == ("before", "after", 1)
    names = [row.model_name async for row in ModelCall.objects.order_by("id")]
    assert names == ["a", "b"]
    assert "could not be stored" not in caplog.text


class LostAnswers(Database):
    """The first `times` writes are committed, but their answers are lost."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def write(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def call() -> Any:
            found = function(*args, **kwargs)
            self.times -= 1
            if self.times >= 0:
                raise DatabaseClosed("the connection is lost")
            return found

        return super().write(call)


async def test_calls_whose_commit_was_not_answered_are_stored_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(write_behind, "PAUSE", 0.01)
    database = LostAnswers(2)
    records = WriteBehindQueue(database)
    for name in "ab":
        records.add_call(lambda name=name: ModelCall(model_name=name))
    await wait_for_rows(2)
    records.add_call(lambda: ModelCall(model_name="c"))
    await wait_for_rows(3)
    async with asyncio.timeout(60):
        while database.times >= 0:
            await asyncio.sleep(0)
    await records.close()
    names = [row.model_name async for row in ModelCall.objects.order_by("id")]
    assert names == ["a", "b", "c"]
    assert "could not be stored" not in caplog.text
    await database.close()


async def test_what_an_outage_has_left_waiting_is_written_in_batches(
    records: WriteBehindQueue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(write_behind, "BATCH", 2)
    monkeypatch.setattr(write_behind, "PAUSE", 0.01)
    records.add(Outage(1))
    for name in "abcde":
        records.add_call(lambda name=name: ModelCall(model_name=name))
    await wait_for_rows(5)
    names = [row.model_name async for row in ModelCall.objects.order_by("id")]
    assert names == [*"abcde"]


async def test_a_long_outage_fills_no_memory(
    records: WriteBehindQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(write_behind, "PAUSE", 0.01)
    monkeypatch.setattr(write_behind, "MAX_WAITING", 3)
    records.add(Outage(1))
    for name in "abcde":
        records.add_call(lambda name=name: ModelCall(model_name=name))
    await wait_for_rows(3)
    names = {row.model_name async for row in ModelCall.objects.all()}
    assert names == {"a", "b", "c"}
    assert "2 records of the gateway could not be stored" in caplog.text


async def test_a_write_that_always_fails_holds_nothing_up_for_ever(
    records: WriteBehindQueue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(write_behind, "PAUSE", 0.01)
    monkeypatch.setattr(write_behind, "GIVE_UP_AFTER", 0.0)
    records.add(Outage(1_000_000))
    records.add_call(lambda: ModelCall(model_name="a"))
    await wait_for_rows(1)
    assert "a record of the gateway could not be stored" in caplog.text


async def test_a_server_that_ends_does_not_wait_for_its_database(
    records: WriteBehindQueue, caplog: pytest.LogCaptureFixture
):
    records.add(Outage(1_000_000))
    await records.close()
    assert "a record of the gateway could not be stored" in caplog.text
