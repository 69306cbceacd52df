"""What a heartbeat writes, and what it learns."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db.models.signals import post_save, pre_save
from django.utils import timezone

from conversations.engine import rows
from conversations.engine.rows import Claim, Snapshot
from conversations.models import Conversation, Item, Turn
from llm.models import ModelCall
from llm.wire.items import user_message

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("model", [Turn, Item, ModelCall])
@pytest.mark.parametrize("signal", [pre_save, post_save], ids=["before", "after"])
def test_nobody_waits_for_a_signal_that_no_insert_sends(model, signal):
    """No app of ours or of others: `llm.prepared.Insert` would pass it by."""
    assert not signal.has_listeners(model)


def running() -> Claim:
    owner, _ = User.objects.get_or_create(username="anna")
    conversation = Conversation.objects.create(owner=owner)
    turn = conversation.open_turn([user_message("hello")])
    claim = rows.claim(turn.pk)
    assert claim is not None
    return claim


def turn_of(claim: Claim) -> Turn:
    return Turn.objects.get(pk=claim.turn_id)


def test_a_beat_keeps_what_was_said_and_renews_the_lease():
    speaks, thinks, begins = running(), running(), running()
    kept = Snapshot([{"type": "message", "id": "msg_1"}], 7)
    rows.heartbeat({speaks: kept, thinks: kept})
    Turn.objects.update(lease_until=timezone.now())
    later = Snapshot([{"type": "message", "id": "msg_2"}], 9)
    heard = rows.heartbeat({speaks: later, thinks: None, begins: Snapshot([], 1)})
    assert (heard.lost, heard.stopped) == ([], [])
    told = [(turn_of(c).partial, turn_of(c).last_sequence) for c in (speaks, thinks)]
    assert told == [(later.items, 9), (kept.items, 7)]
    assert (turn_of(begins).partial, turn_of(begins).last_sequence) == ([], 1)
    assert all(turn.lease_until > timezone.now() for turn in Turn.objects.all())


def test_a_beat_learns_what_is_lost_and_what_is_to_stop():
    mine, taken, over, gone, stopped = (running() for _ in range(5))
    Turn.objects.filter(pk=taken.turn_id).update(epoch=2, partial=["theirs"])
    Turn.objects.filter(pk=over.turn_id).update(status=Turn.Status.COMPLETED)
    Turn.objects.filter(pk=gone.turn_id).delete()
    rows.request_cancel(stopped.turn_id)
    said = Snapshot(["mine"], 3)
    heard = rows.heartbeat(dict.fromkeys((mine, taken, over, gone, stopped), said))
    assert sorted(heard.lost) == sorted(c.turn_id for c in (taken, over, gone))
    assert heard.stopped == [stopped.turn_id]
    assert turn_of(taken).partial == ["theirs"]
    assert turn_of(over).partial is None
    assert turn_of(stopped).partial == ["mine"]


def test_beats_of_many_runs_are_of_all(monkeypatch, django_assert_num_queries):
    monkeypatch.setattr(rows, "BEATS", 2)
    claims = [running() for _ in range(5)]
    for claim in claims[3:]:
        rows.request_cancel(claim.turn_id)
    with django_assert_num_queries(2 + 2 * 3):  # the transaction's own two
        heard = rows.heartbeat(dict.fromkeys(claims, Snapshot([1], 1)))
    assert sorted(heard.stopped) == sorted(claim.turn_id for claim in claims[3:])
    assert [turn_of(claim).partial for claim in claims] == [[1]] * 5
    assert rows.heartbeat({}) == rows.Heard([], [])
