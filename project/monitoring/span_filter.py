"""The provider of spans, and an exporter that leaves texts of errors out.

The MCP SDK makes spans too. It records exceptions and describes failures with their
messages, which may quote what a tool was asked or has answered.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Status


def create_provider() -> TracerProvider:
    """OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES and OTEL_TRACES_SAMPLER apply."""
    resource = Resource.create({SERVICE_VERSION: _version()})
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "parley"}))
    return TracerProvider(
        resource=resource,
        span_limits=SpanLimits(max_events=0),  # they would be exceptions
        shutdown_on_exit=False,  # `trace_export.close` does it, in limited time
    )


class TextlessExporter(SpanExporter):
    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return self._exporter.export([_remove_text(span) for span in spans])

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _remove_text(span: ReadableSpan) -> ReadableSpan:
    if not span.status.description:
        return span
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        links=span.links,
        kind=span.kind,
        instrumentation_scope=span.instrumentation_scope,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
    )


def _version() -> str:
    return str(settings.SPECTACULAR_SETTINGS["VERSION"])
