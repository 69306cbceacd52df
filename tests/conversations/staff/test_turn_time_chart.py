"""The chart of where a turn's time went, and the page of its events."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from conversations.models import Conversation, Item, Turn
from conversations.staff.turn_event_page import EVENTS, event_page
from conversations.staff.turn_time_chart import MAX_BARS, time_chart
from conversations.staff.turn_timeline import TimelineEntry
from llm.wire.items import message
from tests.conversations.scene import a_finished_turn, a_user, signed_in, staff

START = timezone.now()
SPANS = st.tuples(
    st.sampled_from(["queue", "model", "tool", "person", "item"]),
    st.floats(0, 1000),
    st.floats(0, 1000),
)


def entry(kind: str, begin: float, seconds: float, **fields: Any) -> TimelineEntry:
    at = START + timedelta(seconds=begin)
    return TimelineEntry(kind=kind, at=at, title=kind, seconds=seconds, **fields)


@given(st.lists(SPANS, max_size=80))
def test_the_shares_add_up_to_the_whole_and_stay_inside(spans: list[Any]):
    turn = Turn(created_at=START)
    chart = time_chart(turn, [entry(*span) for span in spans])
    if chart is None:
        return
    total = sum(share.seconds for share in chart.shares)
    assert total == pytest.approx(chart.seconds, abs=1e-3)
    assert len(chart.bars) + chart.hidden == sum(s[0] != "item" for s in spans)
    assert len(chart.bars) <= MAX_BARS
    for bar in chart.bars:
        assert bar.before <= bar.width + 0.01
        assert 0 <= bar.left <= 100
        assert bar.left + bar.width <= 101


def test_a_moment_counts_for_what_the_turn_waited_for():
    turn = Turn(created_at=START)
    entries = [entry("queue", 0, 2), entry("model", 2, 6), entry("tool", 6, 4)]
    chart = time_chart(turn, entries)
    assert chart is not None
    seconds = {share.kind: share.seconds for share in chart.shares}
    assert seconds == {"queue": 2, "model": 4, "tool": 4, "person": 0, "rest": 0}


@pytest.fixture
def turn(db: None) -> Turn:
    turn = a_finished_turn(Conversation.objects.create(owner=a_user("ada")))
    turn.epoch = 1
    turn.save()
    return turn


def test_events_are_walked_through_by_number_and_by_position(turn: Turn):
    for position in range(2, 40):
        said = message("assistant", f"part {position}")
        Item.of(
            turn,
            position,
            said,
            origin=Item.Origin.OUTPUT,
            epoch=1,
            sequence=10 * position,
        ).save()
    first = event_page(turn, "")
    assert (first.first, first.previous, first.next) == (0, None, EVENTS)
    numbers = []
    at = 0
    while at is not None:
        page = event_page(turn, str(at))
        numbers += [line.number for line in page.lines]
        at = page.next
    assert numbers == list(range(first.total))
    found = [line for line in event_page(turn, "1-200").lines if line.is_sought]
    assert "part 20" in found[0].text
    for odd in ("-1", "9" * 50, "1-9999999", "٣", "x\0"):
        assert event_page(turn, odd).first == 0


def test_the_events_of_others_need_the_permission(turn: Turn):
    url = reverse("admin:conversations_turn_events", args=[turn.pk])
    assert signed_in(staff("ines", "inspect_turn")).get(url).status_code == 200
    assert signed_in(staff("few", "view_turn")).get(url).status_code == 404
    assert signed_in(a_user("bob")).get(url).status_code == 302
    Turn.objects.update(status=Turn.Status.RUNNING)
    page = signed_in(staff("iris", "inspect_turn")).get(url)
    assert "The turn is not over." in page.content.decode()
