from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from django.contrib.auth.models import User

from conversations.engine.database.executor import Database
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
