"""What a heartbeat writes, and what it learns."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction
from django.db.models.signals import post_save, pre_save
from django.utils import timezone

from conversations.engine import claim_store, lease_store, question_store, turn_store
from conversations.engine.claim_store import Claim
from conversations.engine.lease_store import Snapshot
from conversations.engine.progress_store import LARGE_WRITE, TurnProgress
from conversations.engine.turn_store import Ending
from conversations.models import Conversation, Item, Turn
from llm.db.statements import CompiledInsert
from llm.models import ModelCall
from llm.wire.items import message, user_message

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("model", [Turn, Item, ModelCall])
@pytest.mark.parametrize("signal", [pre_save, post_save], ids=["before", "after"])
def test_no_process_waits_for_a_notification_that_no_insert_sends(model, signal):
    """In no app: `llm.db.statements.CompiledInsert` sends no signal."""
    assert not signal.has_listeners(model)


def running() -> Claim:
    owner, _ = User.objects.get_or_create(username="anna")
    conversation = Conversation.objects.create(owner=owner)
    turn = conversation.open_turn([user_message("hello")]).turn
    claim = claim_store.claim(turn.pk)
    assert claim is not None
    return claim


def turn_of(claim: Claim) -> Turn:
    return Turn.objects.get(pk=claim.turn_id)


def test_a_heartbeat_stores_the_snapshot_and_renews_the_lease():
    speaks, thinks, begins = running(), running(), running()
    snapshot = Snapshot([{"type": "message", "id": "msg_1"}], 7)
    lease_store.heartbeat({speaks: snapshot, thinks: snapshot})
    Turn.objects.update(lease_until=timezone.now())
    later = Snapshot([{"type": "message", "id": "msg_2"}], 9)
    heard = lease_store.heartbeat(
        {speaks: later, thinks: None, begins: Snapshot([], 1)}
    )
    assert (heard.lost, heard.stopped) == ([], [])
    stored = [(turn_of(c).partial, turn_of(c).last_sequence) for c in (speaks, thinks)]
    assert stored == [(later.items, 9), (snapshot.items, 7)]
    assert (turn_of(begins).partial, turn_of(begins).last_sequence) == ([], 1)
    assert all(turn.lease_until > timezone.now() for turn in Turn.objects.all())


def test_a_beat_learns_what_is_lost_and_what_is_to_stop():
    mine, taken, over, missing, stopped = (running() for _ in range(5))
    Turn.objects.filter(pk=taken.turn_id).update(epoch=2, partial=["theirs"])
    Turn.objects.filter(pk=over.turn_id).update(status=Turn.Status.COMPLETED)
    Turn.objects.filter(pk=missing.turn_id).delete()
    claim_store.request_cancel(stopped.turn_id)
    snapshot = Snapshot(["mine"], 3)
    heard = lease_store.heartbeat(
        dict.fromkeys((mine, taken, over, missing, stopped), snapshot)
    )
    assert {*heard.lost} == {taken, over, missing}
    assert heard.stopped == [stopped.turn_id]
    assert turn_of(taken).partial == ["theirs"]
    assert turn_of(over).partial is None
    assert turn_of(stopped).partial == ["mine"]


def test_beats_of_many_runs_are_of_all(monkeypatch, django_assert_num_queries):
    monkeypatch.setattr(lease_store, "BEATS", 2)
    claims = [running() for _ in range(5)]
    for claim in claims[3:]:
        claim_store.request_cancel(claim.turn_id)
    with django_assert_num_queries(2 + 2 * 3):  # the transaction's own two
        heard = lease_store.heartbeat(dict.fromkeys(claims, Snapshot([1], 1)))
    assert sorted(heard.stopped) == sorted(claim.turn_id for claim in claims[3:])
    assert [turn_of(claim).partial for claim in claims] == [[1]] * 5
    assert lease_store.heartbeat({}) == lease_store.HeartbeatResult([], [], [])


def test_committing_an_item_removes_it_from_the_snapshot():
    """A beat may be written after the step that is later: by another thread."""
    mine, item = running(), message("assistant", "Good day")
    before, after = Snapshot([item], 5), Snapshot([message("assistant", "And")], 7)
    turn_store.advance(
        mine, TurnProgress(items=[(item, None, 5)], first_position=1, last_sequence=6)
    )
    lease_store.heartbeat({mine: before})
    assert (turn_of(mine).partial, turn_of(mine).last_sequence) == (None, 6)
    lease_store.store_snapshot(mine, after)
    assert (turn_of(mine).partial, turn_of(mine).last_sequence) == (after.items, 7)


def test_an_item_is_encoded_before_the_transaction():
    mine, item = running(), message("assistant", "Good day")
    row = Item(
        turn_id=mine.turn_id,
        position=1,
        origin=Item.Origin.OUTPUT,
        type="message",
        payload=item,
    )
    write = CompiledInsert(Item).prepare(row)
    item_then = dict(item)
    item["content"] = []
    write()
    assert Item.objects.get(pk=row.pk).payload == item_then


needs_postgres = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="SQLite has one writer"
)


@needs_postgres
@pytest.mark.django_db(transaction=True)
def test_no_lease_waits_for_a_turn_that_is_being_written():
    writes, others = running(), running()
    past = timezone.now()
    Turn.objects.update(lease_until=past)
    theirs = connection.copy()
    try:
        with transaction.atomic(), connection.cursor() as ours:
            ours.execute("SET LOCAL lock_timeout = '5s'")
            with theirs.cursor() as cursor:
                cursor.execute("BEGIN")
                locked = "UPDATE conversations_turn SET usage = NULL WHERE id = %s"
                cursor.execute(locked, [writes.turn_id])
            snapshot = Snapshot([message("assistant", "Half")], 5)
            heard = lease_store.heartbeat({writes: snapshot, others: snapshot})
            assert heard == lease_store.HeartbeatResult([], [], [writes.turn_id])
            assert not lease_store.store_snapshot(writes, snapshot)
            assert turn_of(others).partial == snapshot.items
            assert turn_of(others).lease_until > past
            assert turn_of(writes).lease_until == past
            assert claim_store.to_sweep(10) == []
            with theirs.cursor() as cursor:
                cursor.execute("ROLLBACK")
            assert lease_store.heartbeat({writes: snapshot}).skipped == []
            assert turn_of(writes).partial == snapshot.items
    finally:
        theirs.close()


@needs_postgres
@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_stood_still_is_a_connection_that_broke():
    """And no unexpected error, for which a turn would fail."""
    theirs = connection.copy()
    try:
        with theirs.cursor() as cursor:
            cursor.execute("SET idle_in_transaction_session_timeout = 1")
            cursor.execute("SELECT pg_backend_pid()")
            ((process,),) = cursor.fetchall()
            cursor.execute("BEGIN")
            with connection.cursor() as ours:
                is_there = True
                while is_there:
                    query = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
                    ours.execute(query, [process])
                    ((is_there,),) = ours.fetchall()
            with pytest.raises(OperationalError):
                cursor.execute("SELECT 1")
    finally:
        theirs.close()


@needs_postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("length", "limit"),
    [(10, "5s"), (LARGE_WRITE + 1, "1min")],
    ids=["short", "long"],
)
def test_a_long_write_gets_a_longer_transaction_timeout(length: int, limit: str):
    """For PostgreSQL a transaction is idle while the client sends data."""
    short, long = message("assistant", "Good day"), message("assistant", "x" * length)
    items = [(short, None, 5), (long, None, 9)]
    progress = TurnProgress(
        items=items, first_position=1, last_sequence=9, ended_output=2
    )
    response = {"usage": None, "incomplete_details": None}
    ending = Ending(
        status="completed",
        response=response,
        error=None,
        last_sequence=10,
        called=False,
        progress=progress,
    )

    def finish(claim: Claim) -> None:
        turn_store.finish(claim, ending)

    for write in (
        finish,
        lambda claim: turn_store.advance(claim, progress),
        lambda claim: question_store.suspend(claim, progress, []),
        lambda claim: turn_store.release(claim, [long], []),
    ):
        claim = running()
        with limits_of_writes() as limits:
            write(claim)
        assert set(limits) <= {limit}
        is_one_statement = write is finish  # so no transaction can stand still
        assert bool(limits) is not is_one_statement
        assert limit_now() == "5s"


@contextmanager
def limits_of_writes():
    """How long the transaction may stand still, at each statement in it that writes."""
    limits = []

    def look(execute, sql, params, many, context):
        is_write = sql.startswith(("UPDATE", "INSERT", "WITH changed"))
        if is_write and connection.in_atomic_block:
            limits.append(limit_now())
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        yield limits


def limit_now() -> str:
    query = "SHOW idle_in_transaction_session_timeout"
    return connection.connection.execute(query).fetchone()[0]
