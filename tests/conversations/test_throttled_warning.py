from __future__ import annotations

import logging

from conversations.throttled_warning import ThrottledWarning


def test_the_same_warning_is_logged_once_a_minute(caplog):
    times = iter([0.0, 1.0, 59.9, 60.0, 61.0, 120.0])
    warning = ThrottledWarning(
        logging.getLogger("conversations.test"), "refused: %s", clock=times.__next__
    )
    for number in range(6):
        warning.log(number)
    assert [record.getMessage() for record in caplog.records] == [
        "refused: 0",
        "refused: 3",
        "refused: 5",
    ]
