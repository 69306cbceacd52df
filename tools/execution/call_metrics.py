"""Metrics of tool calls, counted when a call ends, and of their threads."""

from __future__ import annotations

from collections.abc import Callable, Container

from prometheus_client import Counter, Gauge, Histogram

from llm.telemetry.registry import OTHER, REGISTRY, BoundedNames

MAX_TOOLS = 200  # with series of their own
_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)

_names = BoundedNames(MAX_TOOLS)
_calls = Counter(
    "parley_tool_calls",
    "Tool calls that have ended, by their outcome.",
    ("tool", "state"),
    registry=REGISTRY,
)
_duration = Histogram(
    "parley_tool_call_seconds",
    "From the start of a tool call to its end.",
    ("tool",),
    buckets=_SECONDS,
    registry=REGISTRY,
)
_threads = Gauge(
    "parley_tool_threads",
    "Threads of tools that hang and were given up, and calls that wait for a thread.",
    ("state",),
    registry=REGISTRY,
)


def show_threads(**states: Callable[[], int]) -> None:
    """Read these at each scrape."""
    for state, read in states.items():
        _threads.labels(state).set_function(read)


def count_tool_call(
    name: str, known: Container[str], state: str, seconds: float
) -> None:
    """Count a call; one of a tool that is not `known` has the model's invention as its
    name, and is counted under "other"."""
    labels = _names.find(name) if name in known else (OTHER,)
    _calls.labels(*labels, state).inc()
    _duration.labels(*labels).observe(seconds)
