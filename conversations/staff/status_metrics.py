"""Metrics that are read from the rows: the same in every process."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Count, Min, Q
from django.utils import timezone
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from conversations.models import ProcessStatus, Turn
from conversations.staff.engine_status import (
    WORKER_FORGOTTEN_AFTER,
    WORKER_LOST_AFTER,
    count_rows,
    find_oldest_wait,
)
from llm.db.outages import UNREACHABLE


class StatusCollector(Collector):
    """Queries the database at each scrape, in the thread that scrapes."""

    def describe(self) -> list[Metric]:
        return []  # else registering it would collect

    def collect(self) -> Iterator[Metric]:
        metrics: list[Metric] = []
        try:
            metrics += _count_queue()
            metrics += _count_leases()
            metrics += _count_processes()
        except UNREACHABLE:
            metrics = []
        yield GaugeMetricFamily(
            "parley_database_up",
            "1 if the database answers this process, else 0.",
            value=bool(metrics),
        )
        yield from metrics


def _count_queue() -> Iterator[Metric]:
    counts = count_rows()
    turns = GaugeMetricFamily(
        "parley_turns", "Turns that have not ended, by state.", labels=["state"]
    )
    for state in ("queued", "running", "waiting"):
        turns.add_metric([state], counts[state])
    yield turns
    yield GaugeMetricFamily(
        "parley_queue_oldest_wait_seconds",
        "Time that a queued turn has waited although it could run, at most.",
        value=(find_oldest_wait() if counts["queued"] else None) or 0.0,
    )
    yield GaugeMetricFamily(
        "parley_background_calls",
        "Background calls in progress.",
        value=counts["calls"],
    )
    yield GaugeMetricFamily(
        "parley_open_questions", "Questions to people.", value=counts["questions"]
    )


def _count_leases() -> Iterator[Metric]:
    now = timezone.now()
    running = Turn.objects.filter(status=Turn.Status.RUNNING).order_by()
    found = running.aggregate(
        held=Count("pk", filter=Q(lease_until__gte=now)),
        expired=Count("pk", filter=Q(lease_until__lt=now)),
        soonest=Min("lease_until"),
    )
    leases = GaugeMetricFamily(
        "parley_leases", "Leases of running turns.", labels=["state"]
    )
    leases.add_metric(["held"], found["held"])
    leases.add_metric(["expired"], found["expired"])
    yield leases
    soonest = found["soonest"]
    yield GaugeMetricFamily(
        "parley_lease_overdue_seconds",
        "Time since the lease of a running turn has expired, at most.",
        value=max(0.0, (now - soonest).total_seconds()) if soonest else 0.0,
    )


def _count_processes() -> Iterator[Metric]:
    now = timezone.now()
    lost = now - timedelta(seconds=WORKER_LOST_AFTER)
    known = ProcessStatus.objects.filter(heard_at__gte=now - WORKER_FORGOTTEN_AFTER)
    found = known.order_by().aggregate(
        runs_up=Count("pk", filter=Q(runs_turns=True, heard_at__gte=lost)),
        runs_lost=Count("pk", filter=Q(runs_turns=True, heard_at__lt=lost)),
        serves_up=Count("pk", filter=Q(runs_turns=False, heard_at__gte=lost)),
        serves_lost=Count("pk", filter=Q(runs_turns=False, heard_at__lt=lost)),
    )
    processes = GaugeMetricFamily(
        "parley_processes",
        "Processes that have reported within 30 seconds (up) or not (lost).",
        labels=["runs_turns", "state"],
    )
    for runs_turns, prefix in (("yes", "runs"), ("no", "serves")):
        for state in ("up", "lost"):
            processes.add_metric([runs_turns, state], found[f"{prefix}_{state}"])
    yield processes
