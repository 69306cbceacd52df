"""How the staff pages format durations of the engine."""

from __future__ import annotations

import pytest

from conversations.staff.engine_status import format_duration
from conversations.templatetags.staff import seconds


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.04, "0.0s"),
        (5.24, "5.2s"),
        (119, "119.0s"),
        (120, "2m"),
        (7200, "2h"),
        (259199.4, "3d"),
        (-300, "-5m"),
    ],
)
def test_a_duration_is_shown_in_the_most_readable_unit(value, words):
    assert format_duration(value) == words


def test_a_page_parts_number_and_unit_so_that_they_stay_together():
    assert seconds(259199.4) == "3\N{NO-BREAK SPACE}d"
    assert seconds(0.0123, 3) == "0.012 s"
    assert seconds(None) == "–"
