"""Spans in memory, for tests within this process."""

from __future__ import annotations

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from llm.telemetry.spans import Spans
from project.monitoring.span_filter import TextlessExporter, create_provider


class TracedSpans:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = create_provider()
        filtered = TextlessExporter(self._exporter)
        self.provider.add_span_processor(SimpleSpanProcessor(filtered))
        self.spans = Spans(self.provider)

    @property
    def ended(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def only(self) -> ReadableSpan:
        (span,) = self.ended
        return span
