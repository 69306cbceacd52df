from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.tools.calls import outcome
from tools.builtin import current_time as module
from tools.builtin.current_time import current_time


@pytest.fixture
def noon(monkeypatch):
    """It is noon in London, on a Saturday of winter."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2026, 11, 21, 12, 0, 0, 5, UTC).astimezone(tz)

    monkeypatch.setattr(module, "datetime", Clock)


@pytest.mark.parametrize(
    ("timezone", "time", "offset"),
    [
        ("Europe/Paris", "2026-11-21T13:00:00+01:00", "+01:00"),
        ("Asia/Kathmandu", "2026-11-21T17:45:00+05:45", "+05:45"),
        ("America/New_York", "2026-11-21T07:00:00-05:00", "-05:00"),
        ("UTC", "2026-11-21T12:00:00+00:00", "+00:00"),
    ],
)
async def test_it_returns_the_local_time(noon, timezone, time, offset):
    result = await outcome(current_time, timezone=timezone)
    assert json.loads(result.output) == {
        "timezone": timezone,
        "time": time,
        "weekday": "Saturday",
        "utc_offset": offset,
    }


async def test_without_a_zone_it_returns_utc():
    body = json.loads((await outcome(current_time)).output)
    assert body["timezone"] == "UTC"
    assert datetime.fromisoformat(body["time"]).utcoffset() == timedelta()


@pytest.mark.parametrize("timezone", ["europe/paris", " Europe/Paris "])
async def test_spelling_does_not_matter(timezone):
    body = json.loads((await outcome(current_time, timezone=timezone)).output)
    assert body["timezone"] == "Europe/Paris"


@pytest.mark.parametrize(
    ("timezone", "example"),
    [
        ("Paris", "Europe/Paris"),
        ("New York", "America/New_York"),
        ("Europe/Pariss", "Europe/Paris"),
        ("UTC+2", "Europe/Paris"),
        ("Atlantis", "Europe/Paris"),
        ("", "Europe/Paris"),
        ("Europe", "Europe/Paris"),
        ("../../../etc/passwd", "Europe/Paris"),
        ("/etc/localtime", "Europe/Paris"),
        ("Europe/Paris\0", "Europe/Paris"),
        ("x" * 5000, "Europe/Paris"),
    ],
)
async def test_an_unknown_zone_is_answered_with_an_example(timezone, example):
    result = await outcome(current_time, timezone=timezone)
    named = timezone[:64].replace("\0", "\ufffd")  # no database takes a NUL
    assert result.state == "failed"
    assert result.output == (
        f"Error: {named!r} is not a time zone; use a name of the IANA database,"
        f" for example {example}."
    )
