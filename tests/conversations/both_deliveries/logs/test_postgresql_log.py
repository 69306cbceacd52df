"""The event log over PostgreSQL alone: complete, ordered, closed to superseded runs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.layers import channel_layers
from django.conf import settings
from django.db import connection
from django.utils import timezone
from psycopg import AsyncConnection

from conversations.engine.event_log import StaleEpoch
from conversations.engine.maintenance.row_erasure import erase_turns
from conversations.engine.postgresql import bus as buses
from conversations.engine.postgresql import tables
from conversations.engine.postgresql.bus import EVENTS, PostgresBus
from conversations.engine.postgresql.channel_layer import PostgresLayer
from conversations.engine.postgresql.event_log import PostgresLog
from conversations.engine.shared_log import run_log
from conversations.models import Turn
from llm.db.connection_parameters import connection_parameters
from llm.wire.items import user_message
from tests.conversations.both_deliveries.logs.test_redis_log import (
    event_batches,
    heard,
    until,
)

pytestmark = [
    pytest.mark.skipif(not settings.IS_SCALED, reason="the database is SQLite"),
    pytest.mark.django_db(transaction=True),
]


class Process:
    """The parts of an engine that use the event log, once for each process."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.notifications: list[list[str]] = []
        self.bus = PostgresBus(self._receive)
        self.log = PostgresLog(self.bus)
        if deaf:  # so that it only polls
            self.bus.on_events = lambda turn_ids: None

    def _receive(self, kind: str, ids: list[str]) -> None:
        self.notifications.append([kind, *ids])

    async def __aenter__(self) -> Process:
        self.bus.start()
        self.log.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.log.aclose()
        await self.bus.close()


@pytest.fixture
def claim(conversation: Any) -> Any:
    """Makes a turn that a run has claimed."""

    def claim(epoch: int = 1, **fields: Any) -> str:
        turn = conversation.open_turn([user_message("Hi")]).turn
        running = Turn.Status.RUNNING
        Turn.objects.filter(pk=turn.pk).update(
            **{"epoch": epoch, "status": running, **fields}
        )
        return str(turn.pk)

    return claim


@pytest.fixture
def turn(claim: Any) -> str:
    return claim()


@sync_to_async
def execute(sql: str, *parameters: Any) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return cursor.fetchall() if cursor.description else []


async def stored(turn: str) -> list[Any]:
    return await execute(
        "SELECT epoch, first FROM conversations_eventbatch WHERE turn_id = %s"
        " ORDER BY epoch, first",
        turn,
    )


async def end_connections(name: str) -> None:
    """End them in PostgreSQL, as an administrator or a crash does."""
    await execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = %s AND datname = current_database()",
        f"parley {name}",
    )


@pytest.mark.parametrize("deaf", [False, True], ids=["hints", "no hints"])
async def test_another_process_reads_the_same_events(turn, deaf):
    async with Process() as worker, Process(deaf=deaf) as web:
        journal = worker.log.open_publisher(turn, lambda: None)
        mirror = await web.log.subscribe(turn)
        events = []
        for batch in event_batches(turn):
            journal.append(1, batch)
            events += batch
            await asyncio.sleep(0)
        await until(lambda: mirror.ended)
        assert [entry.event for entry in mirror.entries] == events
        late = await heard(worker, turn, len(events))
        assert [entry.data for entry in late.entries] == [
            entry.data for entry in mirror.entries
        ]


async def test_a_superseded_run_can_publish_nothing_more(turn):
    async with Process() as zombie, Process() as other:
        fenced = asyncio.Event()
        first = zombie.log.open_publisher(turn, fenced.set)
        start, *rest = event_batches(turn)
        first.append(1, start)
        await heard(zombie, turn, len(start))
        await Turn.objects.filter(pk=turn).aupdate(
            epoch=2
        )  # another run has claimed it
        first.append(1, rest[0])
        async with asyncio.timeout(30):
            await fenced.wait()
        with pytest.raises(StaleEpoch):
            first.append(1, rest[1])
        assert await stored(turn) == [(1, 0)]
        second = other.log.open_publisher(turn, lambda: None)
        for batch in event_batches(turn, ["Another"]):
            second.append(2, batch)
        mirror = await other.log.subscribe(turn)
        await until(lambda: mirror.ended)
        assert {entry.log_position.epoch for entry in mirror.entries} == {2}


async def test_what_an_earlier_run_has_left_does_not_stop_a_later_one_here(turn):
    """A person decides before the last events of the suspended run are written."""
    fenced: list[int] = []
    async with Process() as worker:
        first = worker.log.open_publisher(turn, lambda: fenced.append(1))
        start, *rest = event_batches(turn)
        first.append(1, start)
        await heard(worker, turn, len(start))
        await Turn.objects.filter(pk=turn).aupdate(epoch=2)
        first.append(1, rest[0])
        worker.log.close(turn)
        second = worker.log.open_publisher(turn, lambda: fenced.append(2))
        for batch in event_batches(turn, ["Another"]):
            second.append(2, batch)
        mirror = await worker.log.subscribe(turn)
        await until(lambda: mirror.ended)
        assert {entry.log_position.epoch for entry in mirror.entries} == {2}
    assert fenced == []


async def test_the_run_of_a_deleted_turn_can_publish_nothing_more(transactional_db):
    async with Process() as worker:
        fenced = asyncio.Event()
        journal = worker.log.open_publisher("resp_deleted", fenced.set)
        journal.append(1, next(event_batches("resp_deleted")))
        async with asyncio.timeout(30):
            await fenced.wait()
        assert await stored("resp_deleted") == []


async def test_what_many_runs_append_at_once_is_announced_once(claim):
    turns = [await sync_to_async(claim)() for _ in range(20)]
    async with (
        await AsyncConnection.connect(
            **connection_parameters(), autocommit=True
        ) as raw,
        Process() as worker,
        Process() as web,
    ):
        await raw.set_autocommit(True)
        await raw.execute(f"LISTEN {EVENTS}".encode())
        mirrors = [await web.log.subscribe(name) for name in turns]
        for name in turns:
            journal = worker.log.open_publisher(name, lambda: None)
            for batch in event_batches(name, ["a"] * 10):
                journal.append(1, batch)
        await until(lambda: all(mirror.ended for mirror in mirrors))
        heard_ids = [n.payload.split(" ") async for n in raw.notifies(timeout=0)]
        assert [sorted(ids) for ids in heard_ids] == [sorted(turns)]


@pytest.mark.parametrize("name", ["listener", "events"])
async def test_lost_connections_lose_no_event(turn, name):
    async with Process() as worker, Process() as web:
        journal = worker.log.open_publisher(turn, lambda: None)
        batches = list(event_batches(turn, ["a", "b", "c", "d"]))
        journal.append(1, batches[0])
        mirror = await heard(web, turn, len(batches[0]))
        for batch in batches[1:-1]:
            await end_connections(name)
            journal.append(1, batch)
            await asyncio.sleep(0)
        await end_connections(name)
        journal.append(1, batches[-1])
        await until(lambda: mirror.ended)
        events = [event for batch in batches for event in batch]
        assert [entry.event for entry in mirror.entries] == events


async def test_a_table_that_a_crash_has_emptied_is_filled_again(turn):
    async with Process() as worker, Process() as web:
        journal = worker.log.open_publisher(turn, lambda: None)
        batches = list(event_batches(turn))
        for batch in batches[:3]:
            journal.append(1, batch)
        mirror = await heard(web, turn, 3)
        # What a crash does: unlogged tables are empty, and no connection lasts.
        await execute("TRUNCATE conversations_eventbatch")
        for name in ("listener", "events"):
            await end_connections(name)
        for batch in batches[3:]:
            journal.append(1, batch)
        await until(lambda: mirror.ended)
        async with Process() as other:
            late = await other.log.subscribe(turn)
            await until(lambda: late.ended)
        events = [event for batch in batches for event in batch]
        for each in (mirror, late):
            assert [entry.event for entry in each.entries] == events


async def test_a_long_event_arrives_whole_beside_short_ones(claim):
    long, short = await sync_to_async(claim)(), await sync_to_async(claim)()
    text = "x" * 3_000_000
    async with Process() as worker, Process() as web:
        for name, texts in ((long, [text]), (short, ["ok"])):
            journal = worker.log.open_publisher(name, lambda: None)
            for batch in event_batches(name, texts):
                journal.append(1, batch)
        mirrors = [await web.log.subscribe(name) for name in (long, short)]
        await until(lambda: all(mirror.ended for mirror in mirrors))
        delta = next(e for e in mirrors[0].entries if e.type.endswith("text.delta"))
        assert delta.event["delta"] == text


async def test_a_turn_beyond_the_limit_of_memory_ends_in_the_rows(turn, monkeypatch):
    """An empty batch sends its subscribers there."""
    monkeypatch.setattr(run_log, "MAX_TOTAL_SIZE", 20_000)
    monkeypatch.setattr(run_log, "SHORT_LOG_SIZE", 5_000)
    async with Process() as worker:
        journal = worker.log.open_publisher(turn, lambda: None)
        for batch in event_batches(turn, ["x" * 3_000] * 20):
            journal.append(1, batch)
            await until(lambda: journal.is_sent)
        assert journal.size < 20_000 + 2 * 5_000
        [(data,)] = await execute(
            "SELECT data FROM conversations_eventbatch WHERE turn_id = %s"
            " ORDER BY first DESC LIMIT 1",
            turn,
        )
        assert bytes(data) == b""


async def test_old_events_are_deleted_and_those_of_running_turns_stay(claim):
    over = Turn.Status.COMPLETED
    past = timezone.now() - timedelta(minutes=5)
    make = sync_to_async(claim)
    running, ended = await make(), await make(status=over, finished_at=past)
    just_ended = await make(status=over, finished_at=timezone.now())
    async with Process() as worker:
        for name in (running, ended, just_ended):
            journal = worker.log.open_publisher(name, lambda: None)
            journal.append(1, next(event_batches(name)))
            await heard(worker, name, 1)
    await execute("UPDATE conversations_eventbatch SET created_at = %s", past)
    await sync_to_async(tables.delete_old)()
    assert await stored(running)
    assert await stored(just_ended)
    assert not await stored(ended)
    await execute(
        "UPDATE conversations_eventbatch SET created_at = %s",
        timezone.now() - timedelta(days=2),
    )
    await sync_to_async(tables.delete_old)()
    assert not await stored(running)


async def test_forgotten_events_are_gone(turn):
    async with Process() as worker:
        worker.log.open_publisher(turn, lambda: None).append(
            1, next(event_batches(turn))
        )
        await heard(worker, turn, 1)
        await worker.log.delete(turn)
        assert await stored(turn) == []


async def test_an_erased_turn_leaves_no_events(turn):
    async with Process() as worker:
        worker.log.open_publisher(turn, lambda: None).append(
            1, next(event_batches(turn))
        )
        await heard(worker, turn, 1)
        assert await stored(turn)
        await sync_to_async(erase_turns)([turn])
        assert await stored(turn) == []


# Notifications


async def test_all_processes_hear_a_notification(transactional_db):
    async with Process() as worker, Process() as web:
        while not (web.notifications and worker.notifications):
            await web.bus.publish_notification("cancel", "resp_1")
            await asyncio.sleep(0)
        assert ["cancel", "resp_1"] in worker.notifications


async def test_a_notification_that_fails_stops_no_later_one(transactional_db, caplog):
    failures, found = [KeyError("first")], asyncio.Event()

    def receive(kind: str, ids: list[str]) -> None:
        if failures:
            raise failures.pop()
        found.set()

    bus = PostgresBus(receive)
    bus.start()
    while not found.is_set():
        await bus.publish_notification("news", "c1")
        await asyncio.sleep(0)
    await bus.close()
    assert "a notification failed: KeyError" in caplog.text


async def test_a_notification_that_is_too_long_is_logged(transactional_db, caplog):
    bus = PostgresBus(lambda kind, ids: None)
    await bus.publish_notification("news", "x" * buses.MAX_PAYLOAD)
    await bus.close()
    assert "too long" in caplog.text


async def test_pages_of_other_processes_hear_of_a_group_once(
    transactional_db, monkeypatch
):
    """The sender's own pages hear of it at once, not again."""
    layer = PostgresLayer()
    monkeypatch.setitem(channel_layers.backends, "default", layer)
    found: asyncio.Queue[Any] = asyncio.Queue()
    layer.join("conversation.1", found.put_nowait)
    message = {"type": "turn.queued", "turn": "resp_1"}
    async with Process() as here:
        await layer.group_send("conversation.1", message)
        assert found.get_nowait() == message
        while not here.notifications:  # which come after it
            await here.bus.publish_notification("last")
            await asyncio.sleep(0)
        assert found.empty()
        async with Process():  # another one, which sends
            while found.empty():
                await PostgresLayer().group_send("conversation.1", message)
                await asyncio.sleep(0)
        assert found.get_nowait() == message


def test_ids_of_many_turns_share_payloads_of_a_length_that_postgresql_takes():
    turns = [f"resp_{number:032}" for number in range(1000)]
    payloads = [*buses.build_event_payloads(turns)]
    assert " ".join(payloads).split(" ") == turns
    assert max(map(len, payloads)) <= buses.MAX_PAYLOAD
    assert len(payloads) == 5
    assert [*buses.build_event_payloads([])] == []
