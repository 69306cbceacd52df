"""Metrics of provider calls, counted when the rows of the calls are written.

At that moment tokens and cost are known, and the code runs in a thread of the database:
nothing is counted on the way of a chunk to its client.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Protocol

from prometheus_client import Counter, Histogram

from llm.telemetry.registry import REGISTRY, BoundedNames

MAX_MODELS = 200  # pairs of provider and model with series of their own
_MODEL = ("provider", "model")
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120)
_LONG_SECONDS = (0.25, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640)
#: What a row counts of its tokens. Cached, written and reasoning tokens are contained
#: in those of input and output.
_TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cached": "cached_tokens",
    "cache_write": "cache_write_tokens",
    "reasoning": "reasoning_tokens",
}

_models = BoundedNames(MAX_MODELS)
_calls = Counter(
    "parley_model_calls",
    "Requests to providers that have ended.",
    (*_MODEL, "status"),
    registry=REGISTRY,
)
_errors = Counter(
    "parley_provider_errors",
    "Failed requests to providers, by the code of their error.",
    (*_MODEL, "error"),
    registry=REGISTRY,
)
_first_token = Histogram(
    "parley_time_to_first_token_seconds",
    "From the request to a provider to the first content of its answer.",
    _MODEL,
    buckets=_SECONDS,
    registry=REGISTRY,
)
_duration = Histogram(
    "parley_model_call_seconds",
    "From the request to a provider to the end of its answer.",
    _MODEL,
    buckets=_LONG_SECONDS,
    registry=REGISTRY,
)
_chunks = Counter(
    "parley_chunks",
    "Reads of providers' streams.",
    _MODEL,
    registry=REGISTRY,
)
_tokens = Counter(
    "parley_tokens",
    "Tokens of prompts and answers; those that a host does not report are estimated.",
    (*_MODEL, "kind"),
    registry=REGISTRY,
)
_cost = Counter(
    "parley_cost_usd",
    "Cost of provider calls, as far as prices are known.",
    _MODEL,
    registry=REGISTRY,
)


class CallRow(Protocol):
    """A `ModelCall`."""

    provider_name: str
    route_name: str
    status: Any
    error_code: str
    is_cached: bool
    ttft: float | None
    latency: float | None
    chunks: int
    cost: Decimal | None


def count_call(row: CallRow) -> None:
    """Count a finished call."""
    labels = _models.find(row.provider_name, row.route_name)
    _calls.labels(*labels, str(row.status)).inc()
    if row.error_code:
        _errors.labels(*labels, row.error_code).inc()
    if row.is_cached:
        return  # no request was sent
    if row.ttft is not None:
        _first_token.labels(*labels).observe(row.ttft)
    if row.latency is not None:
        _duration.labels(*labels).observe(row.latency)
    if row.chunks:
        _chunks.labels(*labels).inc(row.chunks)
    for kind, column in _TOKENS.items():
        if count := getattr(row, column):
            _tokens.labels(*labels, kind).inc(count)
    if row.cost:
        _cost.labels(*labels).inc(float(row.cost))
