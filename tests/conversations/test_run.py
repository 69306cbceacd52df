"""A run between its claim and its first word."""

from __future__ import annotations

from typing import Any, cast

from conversations.engine.rows import Claim
from conversations.engine.run import Run


def test_a_run_that_has_said_nothing_has_nothing_to_keep():
    # Its last event would have the number -1, which no row takes: the heartbeat of
    # all runs of the process would fail with it.
    nobody = cast(Any, None)
    claim = Claim(turn_id="resp_1", conversation_id="conv_1", epoch=1)
    run = Run(claim, nobody, nobody, nobody)
    assert run.snapshot() is None
