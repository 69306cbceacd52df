"""Metrics of this process's engine, read at each scrape."""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from conversations import engine
from conversations.access import overload
from conversations.engine.engine import Engine
from llm.conf import settings as llm_settings


class EngineCollector(Collector):
    """Reads the running engine, in any thread."""

    def describe(self) -> list[Metric]:
        return []  # else registering it would collect

    def collect(self) -> Iterator[Metric]:
        try:
            running = engine.require_engine()
        except engine.NotRunning:
            return
        yield from _collect_turns(running)
        yield from _collect_connections(running)
        yield from _collect_database(running)
        yield from _collect_logs(running)
        yield GaugeMetricFamily(
            "parley_event_loop_lag_seconds",
            "Longest delay of a timer in the last five seconds.",
            value=running.status_report.lag,
        )
        refusals = CounterMetricFamily(
            "parley_busy_refusals_total",
            "Requests refused because a limit of this process was reached.",
            labels=["limit"],
        )
        for limit, count in overload.load.refusals.items():
            refusals.add_metric([limit], count)
        yield refusals


def _collect_turns(running: Engine) -> Iterator[Metric]:
    dispatcher = running.dispatcher
    runs, active = len(dispatcher.runs), len(dispatcher.active_turns)
    turns = GaugeMetricFamily(
        "parley_process_turns",
        "Turns in this process: running, and waiting for a slot or the database.",
        labels=["state"],
    )
    turns.add_metric(["running"], runs)
    turns.add_metric(["starting"], max(0, active - runs))
    yield turns
    yield GaugeMetricFamily(
        "parley_process_turn_slots",
        "Turns that this process runs at once.",
        value=dispatcher.max_runs if running.runs_turns else 0,
    )


def _collect_connections(running: Engine) -> Iterator[Metric]:
    slots = running.status_report.slots
    requests = GaugeMetricFamily(
        "parley_provider_connections",
        "Requests to providers in this process: open, and waiting for a connection.",
        labels=["state"],
    )
    requests.add_metric(["open"], slots.open)
    requests.add_metric(["waiting"], slots.waiting)
    yield requests
    yield GaugeMetricFamily(
        "parley_provider_connections_limit",
        "Requests to providers that may be open at once.",
        value=llm_settings.LLM_MAX_CONNECTIONS,
    )


def _collect_database(running: Engine) -> Iterator[Metric]:
    calls = GaugeMetricFamily(
        "parley_database_calls",
        "Calls that run in the engine's database threads or wait for one.",
        labels=["kind"],
    )
    for kind, in_progress in running.database.calls.items():
        calls.add_metric([kind], len(in_progress))
    yield calls
    yield GaugeMetricFamily(
        "parley_database_threads",
        "Threads of the engine with a connection to the database.",
        value=running.database.threads,
    )


def _collect_logs(running: Engine) -> Iterator[Metric]:
    logs, now = running.log.list_open(), time.monotonic()
    yield GaugeMetricFamily(
        "parley_event_logs",
        "Event logs in this process of turns that have not ended.",
        value=len(logs),
    )
    yield GaugeMetricFamily(
        "parley_event_log_age_seconds",
        "Age of the oldest of these logs.",
        value=max((now - log.began_at for log in logs), default=0.0),
    )
