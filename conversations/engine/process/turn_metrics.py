"""Metrics of turns, counted when their end is stored."""

from __future__ import annotations

import time

from prometheus_client import Counter, Histogram

from llm.telemetry.registry import REGISTRY

_WAITS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 300)
_SECONDS = (0.25, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1800)

_ended = Counter(
    "parley_turns_ended",
    "Turns that have ended in this process, by the state in which they ended.",
    ("state",),
    registry=REGISTRY,
)
_wait = Histogram(
    "parley_turn_wait_seconds",
    "From the acceptance of a turn to the beginning of its first run.",
    buckets=_WAITS,
    registry=REGISTRY,
)
_duration = Histogram(
    "parley_turn_seconds",
    "From the acceptance of a turn to its end, with all waits for people.",
    buckets=_SECONDS,
    registry=REGISTRY,
)


def count_turn(
    ended_as: str, *, created_at: float, began_at: float | None, epoch: int
) -> None:
    """Count a turn that was accepted at `created_at`, and whose last run began at
    `began_at`: None if it could not be loaded. Both are times of `time.time()`."""
    _ended.labels(ended_as).inc()
    if began_at is None:
        return
    if epoch == 1:
        _wait.observe(max(0.0, began_at - created_at))
    _duration.observe(max(0.0, time.time() - created_at))
