from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator

import pytest

from conversations.engine.database.executor import Database, DatabaseThreads

pytestmark = pytest.mark.django_db(transaction=True)
PATIENT = 60.0  # seconds; no test takes as many


@pytest.fixture
async def patient() -> AsyncGenerator[Database, None]:
    database = Database(rest=PATIENT)
    yield database
    await database.close()


async def test_event_loop_rests_while_a_call_is_answered(patient: Database):
    """Nothing else runs in between, and whoever awaits it goes on at once."""
    written, read = patient.write(str, 1), patient.read(str, 2)
    assert written.done()
    assert read.done()
    assert (await written, await read) == ("1", "2")


async def test_what_a_call_raises_is_told_to_who_awaits_it(patient: Database):
    asked = patient.read(int, "three")
    assert asked.done()
    with pytest.raises(ValueError, match="three"):
        await asked


@pytest.mark.parametrize("rest", [0.0, 0.001])
async def test_call_that_takes_longer_holds_nobody_up(rest: float):
    """It is answered later, as every call is where the loop does not rest."""
    database = Database(rest=rest)
    may_go_on = threading.Event()
    asked = database.write(may_go_on.wait, PATIENT)
    behind = database.write(str, 4)
    assert not asked.done()
    may_go_on.set()
    assert await asyncio.gather(asked, behind) == [True, "4"]
    await database.close()


def test_who_asks_threads_rests_until_they_have_answered():
    with DatabaseThreads(1, name="test", rest=PATIENT) as threads:
        assert threads.submit(str, 5).done()
