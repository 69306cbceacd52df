"""The metrics of this process in Prometheus' text format, and the view `/metrics`."""

from __future__ import annotations

from collections.abc import Iterator

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


for _collector in (ServerCollector(), EngineCollector(), StatusCollector()):
    REGISTRY.register(_collector)
ProcessCollector(registry=REGISTRY)


def write_metrics() -> bytes:
    """Queries the database."""
    return generate_latest(REGISTRY)


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
