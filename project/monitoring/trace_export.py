"""Sends spans to the collector that the variables of OpenTelemetry name.

A thread of the SDK sends them in batches. While the collector does not answer, spans
wait in a queue of a fixed length and are dropped beyond it; no turn waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from django.conf import settings

from llm.telemetry import tracing

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

logger = logging.getLogger(__name__)

CLOSE_PATIENCE = 3.0  # seconds for the last spans, when the server stops

_provider: TracerProvider | None = None


def start() -> None:
    """Make spans from now on, if the settings say so. A second call does nothing."""
    global _provider
    if not settings.TRACING or _provider is not None:
        return
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from llm.telemetry.spans import Spans
    from project.monitoring.span_filter import TextlessExporter, create_provider

    _provider = create_provider()
    _provider.add_span_processor(
        BatchSpanProcessor(TextlessExporter(OTLPSpanExporter()))
    )
    trace.set_tracer_provider(_provider)  # for the spans of the MCP SDK
    tracing.spans = Spans(_provider)


async def close() -> None:
    """Send what is left, for a few seconds at most."""
    global _provider
    provider, _provider, tracing.spans = _provider, None, None
    if provider is None:
        return
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def shut_down() -> None:
        provider.shutdown()
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(done.set)

    # No thread of an executor, whose end the end of the process would wait for.
    threading.Thread(target=shut_down, name="parley-spans", daemon=True).start()
    try:
        await asyncio.wait_for(done.wait(), CLOSE_PATIENCE)
    except TimeoutError:
        logger.warning("the last spans could not be sent in time")
