"""The metrics of this process in Prometheus' text format, and the view `/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from conversations.engine.process.engine_metrics import EngineCollector
from conversations.staff.status_metrics import StatusCollector
from llm.telemetry.registry import REGISTRY
from project.monitoring.metrics_access import Scrape, refuse_scrape
from project.server import watchdog

#: A metric's name, documentation and type, and the name, labels and value of samples.
Family = tuple[str, str, str, list[tuple[str, dict[str, str], float]]]

#: Gets the metrics of gateway processes, by the name of each; called in a thread.
collect_others: Callable[[], list[tuple[str, list[Family]]]] = list

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class ServerCollector(Collector):
    def describe(self) -> list[Metric]:
        return []  # else registering it would collect

    def collect(self) -> Iterator[Metric]:
        info = {
            "version": str(settings.SPECTACULAR_SETTINGS["VERSION"]),
            "delivery": "scaled" if settings.IS_SCALED else "embedded",
        }
        yield InfoMetricFamily("parley", "This program.", value=info)
        totals = watchdog.totals
        yield CounterMetricFamily(
            "parley_event_loop_stalls",
            "Times that the event loop stood still for more than 100 ms.",
            value=totals.count,
        )
        yield CounterMetricFamily(
            "parley_event_loop_stalled_seconds",
            "Time that it stood still in those cases.",
            value=totals.seconds,
        )


#: The same for all processes.
database_figures = StatusCollector()
for _collector in (ServerCollector(), EngineCollector(), database_figures):
    REGISTRY.register(_collector)
ProcessCollector(registry=REGISTRY)


class _AllProcesses:
    """The metrics of this process and, with the label `process`, of its others."""

    def collect(self) -> Iterator[Metric]:
        families = {family.name: family for family in REGISTRY.collect()}
        for process, others in collect_others():
            for name, documentation, kind, samples in others:
                family = families.setdefault(name, Metric(name, documentation, kind))
                for sample, labels, value in samples:
                    family.add_sample(sample, {**labels, "process": process}, value)
        yield from families.values()


def write_metrics() -> bytes:
    """Queries the database."""
    everything: Any = _AllProcesses()
    return generate_latest(everything)


@require_safe
def serve_metrics(request: HttpRequest) -> HttpResponse:
    scrape = Scrape(
        request.headers.get("authorization", ""),
        request.META.get("REMOTE_ADDR", ""),
        {name.lower() for name in request.headers},
    )
    if status := refuse_scrape(scrape, settings.MONITORING):
        response = HttpResponse(REFUSAL, status=status, content_type=CONTENT_TYPE)
        if status == 401:
            response["WWW-Authenticate"] = CHALLENGE
        return response
    response = HttpResponse(write_metrics(), content_type=CONTENT_TYPE)
    response["Cache-Control"] = "no-store"
    return response


REFUSAL = "Not allowed.\n"
CHALLENGE = 'Bearer realm="metrics"'
