"""Leases between processes whose clocks do not agree: they go by the database's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models.functions import Now
from django.utils import timezone

from conversations.engine import background_store, claim_store, lease_store, turn_store
from conversations.engine.claim_store import Claim
from conversations.engine.event_log import Position
from conversations.engine.lease_store import Snapshot
from conversations.engine.progress_store import TurnProgress
from conversations.engine.replays.replaying import Replays
from conversations.engine.shared_log.turns_from_rows import load_turns
from conversations.engine.webhooks import delivery_store
from conversations.models import Conversation, Replay, ToolCall, Turn
from conversations.models.webhooks.delivery import Delivery
from llm.wire.items import user_message

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(
        not settings.IS_SCALED, reason="a process alone has one clock, its own"
    ),
]
SKEWS = [-300, -30, 30, 300]  # seconds
each_skew = pytest.mark.parametrize("skew", SKEWS)


@contextmanager
def a_clock_off_by(seconds: float) -> Iterator[None]:
    right = timezone.now
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timezone, "now", lambda: right() + timedelta(seconds=seconds))
        yield


def opened() -> Turn:
    owner, _ = User.objects.get_or_create(username="anna")
    return Conversation.objects.create(owner=owner).open_turn([user_message("Hi")]).turn


def claimed(turn: Turn) -> Claim:
    claim = claim_store.claim(turn.pk)
    assert claim is not None
    return claim


def is_lapsed(turn: Turn) -> bool:
    return [each.turn_id for each in claim_store.to_sweep(100)] == [turn.pk]


def left(row: Turn | ToolCall) -> float:
    """Seconds of the lease, by the database."""
    timed_rows = type(row).objects.filter(pk=row.pk).annotate(at=Now())
    until, now = timed_rows.values_list("lease_until", "at").get()
    return float((until - now).total_seconds())


@each_skew
def test_a_turn_is_not_taken_from_a_live_worker(skew: int):
    """Nor while it is renewed, and with what it does meanwhile."""
    turn = opened()
    mine = claimed(turn)
    for go_on in (
        lambda: None,
        lambda: lease_store.heartbeat({mine: Snapshot([], 1)}),
        lambda: turn_store.advance(mine, TurnProgress()),
    ):
        go_on()
        with a_clock_off_by(skew):
            assert not is_lapsed(turn)
            assert claim_store.claim(turn.pk) is None


@each_skew
def test_a_wrong_clock_changes_no_lease(skew: int):
    turn = opened()
    with a_clock_off_by(skew):
        mine = claimed(turn)
    assert 0 < left(turn) <= settings.TURN_LEASE
    for renew in (
        lambda: lease_store.heartbeat({mine: None}),
        lambda: turn_store.advance(mine, TurnProgress()),
    ):
        Turn.objects.update(lease_until=Now() - timedelta(seconds=1))
        with a_clock_off_by(skew):
            renew()
        assert 0 < left(turn) <= settings.TURN_LEASE
    assert not is_lapsed(turn)


@each_skew
def test_a_released_claim_may_be_taken_at_once(skew: int):
    turn = opened()
    mine = claimed(turn)
    with a_clock_off_by(skew):
        turn_store.release(mine, [], [])
    assert is_lapsed(turn)
    assert claimed(turn).epoch == 2


@each_skew
def test_every_process_finds_an_expired_lease(skew: int):
    turn = opened()
    claimed(turn)
    Turn.objects.update(lease_until=Now() - timedelta(seconds=1))
    with a_clock_off_by(skew):
        assert is_lapsed(turn)
        assert claim_store.find_next_turns(turn.conversation_id) == ([turn.pk], False)
        assert claimed(turn).epoch == 2
    assert not is_lapsed(turn)


@each_skew
def test_the_same_of_calls_in_the_background(skew: int):
    call = opened().tool_calls.create(
        call_id="c1",
        name="count",
        blocking=False,
        state=ToolCall.State.EXECUTING,
        started_at=timezone.now(),
    )
    with a_clock_off_by(skew):
        mine = background_store.claim(call.pk)
    assert mine is not None
    assert 0 < left(call) <= settings.TURN_LEASE
    with a_clock_off_by(skew):
        assert background_store.renew({mine: ""}) == ([], [])
    assert 0 < left(call) <= settings.TURN_LEASE
    for clock in (0, skew):
        with a_clock_off_by(clock):
            assert background_store.find_due(10) == []
            assert background_store.claim(call.pk) is None
    with a_clock_off_by(skew):
        background_store.release([mine])
    assert background_store.find_due(10) == [call.pk]
    assert background_store.claim(call.pk) is not None


@each_skew
def test_the_same_of_replays(skew: int):
    batch, store = Replay.objects.create(name="try"), Replays.store
    with a_clock_off_by(skew):
        lease = store.claim(batch.pk)
    assert lease is not None
    assert store.find_due() is None
    with a_clock_off_by(skew):
        assert store.find_due() is None
        assert store.claim(batch.pk) is None
    Replay.objects.update(lease_until=Now() - timedelta(seconds=1))
    with a_clock_off_by(skew):
        assert store.find_due() == batch.pk


@pytest.mark.parametrize("skew", [30, 300])
def test_the_same_of_webhooks_and_mails(skew: int):
    row = Delivery.objects.create(type="turn.completed")
    Delivery.objects.update(next_attempt_at=Now() - timedelta(hours=1))
    with a_clock_off_by(-skew):
        assert delivery_store.claim(row.pk) is not None
    for clock in (skew, -skew):
        with a_clock_off_by(clock):
            assert delivery_store.claim(row.pk) is None


@each_skew
def test_every_process_sees_that_a_turn_is_over(skew: int):
    """Some moments after its end, in which its last events may still come."""
    turn, known = opened(), Position(1, 4)
    Turn.objects.filter(pk=turn.pk).update(status="completed", finished_at=Now())
    with a_clock_off_by(skew):
        assert load_turns({turn.pk: known}).over == []
    Turn.objects.update(finished_at=Now() - timedelta(seconds=2))
    with a_clock_off_by(skew):
        assert load_turns({turn.pk: known}).over == [turn.pk]
    with a_clock_off_by(abs(skew)):
        Turn.objects.update(finished_at=timezone.now())
    assert load_turns({turn.pk: known}).over == [turn.pk]
